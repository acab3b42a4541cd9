"""The messages between the gate in a program and the part of its node that parks. `protocol` has their bytes. Pure.

An order has a number, which is never 0. Answers repeat it, so that an old answer is never taken for a new one, and it
names the park until the return.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum, IntFlag


class Ability(IntFlag):
    """The abilities of a gate. A newer one may have more, which are kept."""

    PARK = 1
    """The driver has the calls."""
    SHUT = 2
    """Calls can be blocked in this process."""
    CELLS = 4
    """The program tells when cells begin and end."""
    NVML = 8
    """NVML has entries as well."""


class State(IntEnum):
    """The state of a process."""

    RUNNING = 0
    PARKED = 1
    BROKEN = 2
    """It runs, and the driver can never park it."""
    LOST = 3
    """It runs without its data on the GPUs."""
    PARKING = 4
    RETURNING = 5


class Step(IntEnum):
    """The steps of a park and of a return (``park.h``). A newer gate may have more."""

    THREAD = 1
    BLOCK = 2
    LOCK = 3
    DRAIN = 4
    CHECKPOINT = 5
    RESTORE = 6
    UNLOCK = 7


class Reason(IntEnum):
    """The obstacles that a gate knows. A newer gate may have more."""

    DRIVER = 1
    BROKEN = 2
    MANAGED = 3
    IMPORTED = 4
    EXPORTED = 5
    SPACE = 6
    IN_USE = 7
    HANGS = 8
    SHUT = 9


@dataclass(frozen=True, slots=True)
class Hello:
    """The first message of a connection."""

    driver: int
    """CUDA version of the driver: 13000 for 13.0."""
    abilities: Ability
    gpus: int
    """Messages `Gpu` that follow."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that the process saw when CUDA started."""

    uuid: str
    number: int


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state of the process, after its GPUs."""

    state: State
    order: int = 0
    """The one by which it is parked, or that is under way; 0: none."""
    size: int = 0
    """Bytes that are parked."""
    age: int = 0
    """Milliseconds since it was parked."""


@dataclass(frozen=True, slots=True)
class Use:
    """The use that the program makes of its GPUs; comes when that changes."""

    busy: bool
    cell: bool
    """Whether a cell runs."""
    rest: int
    """Milliseconds since the last use; 0 if busy."""
    size: int
    """Bytes on the GPUs, as the gate counts them."""


@dataclass(frozen=True, slots=True)
class Can:
    """The answer that a park could begin."""

    order: int
    size: int
    """Bytes on the GPUs, as the gate counts them."""
    contexts: int


@dataclass(frozen=True, slots=True)
class Cannot:
    """The answer that a park cannot begin."""

    order: int
    reason: int
    """A `Reason`, or a number of a newer gate."""
    figure: int = 0


@dataclass(frozen=True, slots=True)
class Parked:
    """The end of a park."""

    order: int
    size: int
    lock: int
    """Microseconds of that step."""
    checkpoint: int


@dataclass(frozen=True, slots=True)
class Running:
    """The end of a return."""

    order: int
    restore: int
    """Microseconds of that step."""
    unlock: int


@dataclass(frozen=True, slots=True)
class Failed:
    """The end of a park or a return that failed."""

    order: int
    step: int
    """A `Step`, or a number of a newer gate."""
    state: State
    """The state now."""
    code: int
    """The driver's; 0: it was called off."""


@dataclass(frozen=True, slots=True)
class Need:
    """Whether a call waits for the GPUs."""

    wanted: bool


@dataclass(frozen=True, slots=True)
class Check:
    """The question whether a park could begin; it changes nothing."""

    order: int


@dataclass(frozen=True, slots=True)
class Park:
    """The order to park."""

    order: int
    lock: int
    """Milliseconds that the lock may wait for submitted work."""


@dataclass(frozen=True, slots=True)
class Restore:
    """The order to come back."""

    order: int
    maps: int = 0
    """Messages `Map` that follow; 0: the GPUs are the same."""
    patience: int = 0
    """Milliseconds for which it is tried again while a GPU cannot be opened."""


@dataclass(frozen=True, slots=True)
class Map:
    """The GPU that takes the place of one that the process saw when CUDA started."""

    uuid: str
    number: int
    """Number of that one."""


@dataclass(frozen=True, slots=True)
class Cancel:
    """The order to undo a park as soon as the step that runs has ended, if that is not the checkpoint."""

    order: int


FromGate = Hello | Gpu | ProcessState | Use | Can | Cannot | Parked | Running | Failed | Need
FromNode = Check | Park | Restore | Map | Cancel
