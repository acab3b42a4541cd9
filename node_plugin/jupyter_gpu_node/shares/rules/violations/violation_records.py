"""The records of violations, and their form in a file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds

from .penalties import Penalties


@dataclass(frozen=True, slots=True)
class ViolationRecord:
    """The violations of one share, and what is done about them."""

    strikes: float = 0.0
    """Strikes, as they counted at ``struck``."""
    struck: int = 0
    late: int | None = None
    """Time when it was asked for the GPU that it still has."""
    throttled: int = 0
    """Microseconds since then in which a CPU limit kept its programs from running (`throttling`)."""
    scans_seen: int = 0
    """Number of scans in a row that saw it in turns of others."""
    beyond: int = 0
    """Use by processes that ask, beyond its turns and `DOUBT`, since that was zero."""
    beyond_slow: int = 0
    """The same with `SLOW_DOUBT`."""
    untold: int = 0
    """Bytes above its limit that were never granted, at the last comparison of its memory."""
    memory_scans: int = 0
    """Number of such comparisons in a row that saw more than may be an error."""
    stopped: ProcessIds = frozenset()
    since: int = 0
    """Time when they were stopped."""
    avoiders: ProcessIds = frozenset()
    """Observed processes that never ask."""
    api: str = ""
    """API by which all of these use the GPU, if it cannot ask for turns; empty: they could ask."""
    restricted_until: int = 0
    """Time until when these run in its turns only; 0: they run as they like."""
    between: bool = False
    """Whether the processes are stopped between two turns, not for a violation: then only the avoiders are stopped."""
    quiet_scans: int = 0
    """Number of scans in a row that saw no use by them since they are restricted to its turns."""
    dormant_since: int | None = None
    """Time since when it is `Present.dormant` and so does not count as late; None: it is not."""
    taken: str = ""
    """Reason why it was taken away; empty: it was not."""

    def counts(self, now: int, penalties: Penalties) -> float:
        """Return the present weight of its strikes."""
        return self.strikes * float(0.5 ** (max(0, now - self.struck) / penalties.forget))

    def unrestricted(self) -> ViolationRecord:
        """Return the record with no process restricted to its turns, and none seen."""
        return replace(self, avoiders=frozenset(), restricted_until=0, scans_seen=0)

    def is_forgotten(self, now: int, penalties: Penalties) -> bool:
        """Tell whether nothing is left to remember."""
        seen = self.scans_seen or self.beyond or self.beyond_slow or self.memory_scans
        acted = self.stopped or self.restricted_until or self.taken
        idle = self.late is None and self.dormant_since is None and not acted
        return idle and not seen and self.counts(now, penalties) < 0.05


State = Mapping[str, ViolationRecord]


def to_plain(state: State) -> dict[str, Any]:
    """Return a state for a file, without present lateness and use: they are observed again."""
    return {
        share: {
            "strikes": one.strikes,
            "struck": one.struck,
            "stopped": [[each.pid, each.start] for each in sorted(one.stopped)],
            "taken": one.taken,
        }
        for share, one in state.items()
    }


def from_plain(plain: Any) -> State:
    """Return the state from what `to_plain` gave. Raises `ValueError` for anything else."""
    try:
        found = {}
        for share, one in plain.items():
            stopped = frozenset(ProcessId(*each) for each in one["stopped"])
            whole = [one["struck"], *(number for each in stopped for number in (each.pid, each.start))]
            if not all(type(number) is int and number >= 0 for number in whole) or not all(one.pid for one in stopped):
                raise ValueError("a process or a moment is not a whole number")
            if not 0 <= one["strikes"] < inf or not isinstance(one["taken"], str):
                raise ValueError("strikes or taken is out of range")
            found[share] = ViolationRecord(float(one["strikes"]), one["struck"], stopped=stopped, taken=one["taken"])
    except (AttributeError, KeyError, TypeError, ValueError) as error:
        raise ValueError(f"This is not a record of violations: {error!r}.") from error
    return found
