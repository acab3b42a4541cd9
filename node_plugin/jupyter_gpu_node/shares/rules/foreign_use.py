"""GPU time that the processes of a share used in the turns of other shares. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from jupyter_gpu_node.processes.rules.process_id import ProcessId


def foreign(
    uses: Mapping[str, Mapping[ProcessId, int]], turns: Mapping[str, int], members: Collection[ProcessId]
) -> dict[str, dict[ProcessId, int]]:
    """Return, by share, what non-member processes used, at most what others had turns: they launch whenever they like.

    ``uses`` and ``turns`` are of the same time, in microseconds.
    """
    found: dict[str, dict[ProcessId, int]] = {}
    for share, by_process in uses.items():
        others = _of_others(share, turns)
        for process in sorted(by_process.keys() - members):
            if part := min(others, by_process[process]):
                found.setdefault(share, {})[process] = part
                others -= part
    return found


def beyond(
    uses: Mapping[str, Mapping[ProcessId, int]], turns: Mapping[str, int], members: Collection[ProcessId]
) -> dict[str, int]:
    """Return, by share, what its members used beyond its turns; below zero: less. At most what others had turns."""
    found = {}
    for share, had in turns.items():
        used = sum(use for process, use in uses.get(share, {}).items() if process in members)
        found[share] = min(used - had, _of_others(share, turns))
    return found


def _of_others(share: str, turns: Mapping[str, int]) -> int:
    return sum(turn for other, turn in turns.items() if other != share)
