"""Checks of a bundle before anything is touched: whether it can be parked as far as the node knows. Pure.

What only the process knows is asked by `messages.Check`. A checkpoint that fails is the last one that the driver does
for that process, so whatever is not known counts as an obstacle.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from jupyter_gpu.model.gpu import Holder
from jupyter_gpu.model.parking import Obstacle
from jupyter_gpu_node.processes.rules.process_id import ProcessId

from .bundles import Bundle
from .messages import Ability, Cannot, Failed, Hello, Reason, State, Step

OLDEST_DRIVER = {"x86_64": 580, "aarch64": 595}
"""The first driver that does it, by processor; none for others."""
_NEEDED = Ability.PARK | Ability.SHUT
_OBSTACLES: Mapping[int, Obstacle] = {
    Reason.DRIVER: Obstacle.DRIVER,
    Reason.BROKEN: Obstacle.BROKEN,
    Reason.MANAGED: Obstacle.MANAGED_MEMORY,
    Reason.IMPORTED: Obstacle.IMPORTED_MEMORY,
    Reason.EXPORTED: Obstacle.EXPORTED_MEMORY,
    Reason.SPACE: Obstacle.ADDRESS_SPACE,
    Reason.IN_USE: Obstacle.IN_USE,
    Reason.HANGS: Obstacle.HANGS,
    Reason.SHUT: Obstacle.NO_GATE,
}


class Refusal(NamedTuple):
    """The reason that a bundle cannot be parked."""

    why: str
    """An `Obstacle`, or the word for a number of a newer gate."""
    figure: int | None = None
    holders: tuple[Holder, ...] = ()


class GpuFacts(NamedTuple):
    """The settings of a GPU, as its driver tells; ``None``: not known."""

    driver: int | None = None
    """Major version."""
    persistence: bool | None = None
    partitioned: bool | None = None
    """Whether MIG or MPS is in use, or it is virtual."""


class ProcessFacts(NamedTuple):
    """A process that has a GPU open."""

    holder: Holder
    hello: Hello | None = None
    """The words of its gate; ``None``: it has none that is connected."""
    state: State | None = None


def refusal(
    bundle: Bundle,
    gpus: Mapping[str, GpuFacts],
    processes: Mapping[ProcessId, ProcessFacts],
    machine: str,
    *,
    several: bool = False,
) -> Refusal | None:
    """Return why the node would not park ``bundle``; ``None``: its processes are to be asked.

    ``several``: bundles of more than one process or GPU are parked as well.
    """
    why = _of_gpus([gpus.get(gpu, GpuFacts()) for gpu in bundle.gpus], OLDEST_DRIVER.get(machine))
    return why or _of_processes([processes[one] for one in bundle.processes]) or _of_size(bundle, several)


def _of_gpus(gpus: list[GpuFacts], oldest: int | None) -> Refusal | None:
    if oldest is None or any(gpu.driver is None or gpu.driver < oldest for gpu in gpus):
        return Refusal(Obstacle.DRIVER)
    if any(gpu.partitioned is not False for gpu in gpus):
        return Refusal(Obstacle.PARTITION)
    return None if all(gpu.persistence for gpu in gpus) else Refusal(Obstacle.PERSISTENCE)


def _of_processes(processes: list[ProcessFacts]) -> Refusal | None:
    without = tuple(one.holder for one in processes if one.hello is None or Ability.SHUT not in one.hello.abilities)
    if without:
        return Refusal(Obstacle.NO_GATE, holders=without)
    if any(one.hello and _NEEDED not in one.hello.abilities for one in processes):
        return Refusal(Obstacle.DRIVER)
    states = {one.state for one in processes}
    if states & {State.BROKEN, State.LOST}:
        return Refusal(Obstacle.BROKEN)
    return None if states == {State.RUNNING} else Refusal(Obstacle.HANGS)


def _of_size(bundle: Bundle, several: bool) -> Refusal | None:
    alone = len(bundle.processes) == 1 and len(bundle.gpus) == 1
    return None if several or alone else Refusal(Obstacle.SEVERAL)


def answered(cannot: Cannot) -> Refusal:
    """Return what a process has answered to a check."""
    word = _OBSTACLES.get(cannot.reason)
    return Refusal(str(word) if word else f"gate-{cannot.reason}"[:32], cannot.figure or None)


def failed(message: Failed) -> Refusal:
    """Return why a park has failed."""
    if message.state is State.BROKEN:
        return Refusal(Obstacle.BROKEN, message.code or None)
    if message.step in (Step.THREAD, Step.BLOCK) and message.code:  # 0: it was called off
        return Refusal(Obstacle.NO_GATE)
    return Refusal(Obstacle.IN_USE)
