"""The events by which offences are judged (`violations`), and the orders that follow. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds

# --- what happens -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Began:
    """The start of the node plugin; nothing of what was stopped stays so."""


@dataclass(frozen=True, slots=True)
class Late:
    """A share that was asked for the GPU at ``since`` and still has it."""

    share: str
    since: int
    again: bool = False
    """Whether this is the turn of which it was said before."""


@dataclass(frozen=True, slots=True)
class GaveBack:
    """The end of a share's turn."""

    share: str


@dataclass(frozen=True, slots=True)
class Turn:
    """The beginning of a share's turn."""

    share: str


@dataclass(frozen=True, slots=True)
class TurnEnded:
    """The end of a share's turn that was asked for in the name of its stopped processes."""

    share: str
    there: ProcessIds
    """Processes of `Record.avoiders` that have not ended."""


@dataclass(frozen=True, slots=True)
class Looked:
    """GPU time in turns of others, by share, in the last ``passed`` microseconds."""

    foreign: Mapping[str, Mapping[ProcessId, int]]
    """Use by processes that never ask."""
    passed: int
    beyond: Mapping[str, int] = field(default_factory=dict)
    """Use by processes that ask, beyond the turns of their share; below zero if they used less."""
    ways: Mapping[str, str] = field(default_factory=dict)
    """Ways to the GPU that cannot ask for turns (`other_apis`) of the processes that used it so, by share, in words."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Bytes above the limit of each share that none of its processes was granted, by the driver's word."""

    untold: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class Removed:
    """The removal of a share, for whatever reason."""

    share: str


@dataclass(frozen=True, slots=True)
class Tick:
    """The passing of time alone."""


Event = Began | Late | GaveBack | Turn | TurnEnded | Looked | Measured | Removed | Tick


# --- what is to be done -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Stop:
    """An order to stop these processes, and to tell the share's user why."""

    share: str
    processes: ProcessIds
    reason: str
    """Empty: it was told before."""


@dataclass(frozen=True, slots=True)
class Continue:
    """An order to let these processes run again."""

    share: str
    processes: ProcessIds


@dataclass(frozen=True, slots=True)
class TakeAway:
    """An order to take the share away, and to tell its user why."""

    share: str
    reason: str


Order = Stop | Continue | TakeAway
