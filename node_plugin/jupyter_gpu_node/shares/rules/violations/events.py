"""The events by which `violations` decides, and the orders that follow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds

# --- what happens -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class EnforcerStarted:
    """The start of the enforcer: no process stays stopped."""


@dataclass(frozen=True, slots=True)
class Late:
    """A share that was asked for the GPU at ``since`` and still has it."""

    share: str
    since: int
    again: bool = False
    """Whether it was reported late for this turn before."""


@dataclass(frozen=True, slots=True)
class GaveBack:
    """The end of a share's turn."""

    share: str


@dataclass(frozen=True, slots=True)
class TurnBegan:
    """The beginning of a share's turn."""

    share: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The end of a share's turn that was requested on behalf of its stopped processes."""

    share: str
    there: ProcessIds
    """Those of the `ViolationRecord.avoiders` that have not ended."""


@dataclass(frozen=True, slots=True)
class UseScanned:
    """GPU time in turns of others, by share, in the last ``passed`` microseconds."""

    foreign: Mapping[str, Mapping[ProcessId, int]]
    """Use by processes that never ask."""
    passed: int
    beyond: Mapping[str, int] = field(default_factory=dict)
    """Use by processes that ask, beyond the turns of their share; below zero if they used less."""
    apis: Mapping[str, str] = field(default_factory=dict)
    """The APIs (`other_apis`) that those processes used and that cannot ask for turns, by share, in words."""


@dataclass(frozen=True, slots=True)
class MemoryScanned:
    """Bytes above the limit of each share that none of its processes was granted, according to the driver."""

    untold: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Removed:
    """The removal of a share, for whatever reason."""

    share: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The passing of time alone."""


Event = EnforcerStarted | Late | GaveBack | TurnBegan | TurnEnded | UseScanned | MemoryScanned | Removed | Tick


# --- what is to be done -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """An order to stop these processes, and to inform the share's user why."""

    share: str
    processes: ProcessIds
    reason: str
    """Reason in words; empty: the user has been informed before."""


@dataclass(frozen=True, slots=True)
class Continue:
    """An order to let these processes run again."""

    share: str
    processes: ProcessIds


@dataclass(frozen=True, slots=True)
class TakeAway:
    """An order to take the share away, and to inform its user why."""

    share: str
    reason: str


EnforcementOrder = Stop | Continue | TakeAway
