"""The records of violations, and their form in a file. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
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
    """Time since when it keeps the GPU."""
    throttled: int = 0
    """Microseconds since then in which a CPU limit kept its programs from running (`throttling`)."""
    looks: int = 0
    """Number of scans in a row that saw it in turns of others."""
    beyond: int = 0
    """Use by its members beyond its turns and `DOUBT`, since that was zero."""
    slowly: int = 0
    """The same with `SLOW_DOUBT`."""
    untold: int = 0
    """Bytes above its limit that were never granted, at the last comparison of its memory."""
    hoards: int = 0
    """Number of such comparisons in a row that saw more than may be an error."""
    stopped: ProcessIds = frozenset()
    since: int = 0
    """Time when they were stopped."""
    avoiders: ProcessIds = frozenset()
    """Observed processes that never ask."""
    api: str = ""
    """API by which all of these use the GPU, if it cannot ask for turns; empty: they could ask."""
    kept: int = 0
    """Time until when these run in its turns only; 0: they run as they like."""
    between: bool = False
    """Whether the processes are stopped between two turns, not for a violation: then only the avoiders are stopped."""
    rests: int = 0
    """Number of scans in a row that saw no use by them since they are kept to their turns."""
    rested: int | None = None
    """Time since when it is excused, as none of its processes runs that could give the GPU back; None: it is not."""
    taken: str = ""
    """Reason why it was taken away; empty: it was not."""

    def counts(self, now: int, penalties: Penalties) -> float:
        """Return the present weight of its strikes."""
        return self.strikes * float(0.5 ** (max(0, now - self.struck) / penalties.forget))


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
        raise ValueError(f"This is not what was kept of violations: {error!r}.") from error
    return found
