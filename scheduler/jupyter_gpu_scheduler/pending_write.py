"""A write whose result is not known yet, and the pod as it counts meanwhile: what is taken is, what is freed is not."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.demand import HeldMemory
from jupyter_gpu.model.gpu import DrainingShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.service import Service, WorkerService
from jupyter_gpu_scheduler.rules.state.pod_state import PodState


@dataclass(eq=False, slots=True)
class PendingWrite:
    """A write of ``allocated`` whose result is not known yet."""

    allocated: Allocated
    node: str
    service: Service | WorkerService | None = None
    """The pod's new ``service``; ``None``: it stays as it is."""
    written: bool = False
    """Whether it is a Binding that was done, and the watch has not shown the pod on its node yet."""


def _covers(after: PodState, before: PodState, uuid: str) -> bool:
    """Tell whether a pod holds at least as much of a GPU as ``before``, and of its memory, whatever that is."""
    milli, had = after.held.get(uuid, 0), before.held[uuid]
    if milli < had or not (after.held_memory or before.held_memory):
        return milli >= had
    held = after.held_memory.get(uuid, HeldMemory(milli, 0))
    return held.milli == MILLI_PER_GPU or held.covers(before.held_memory.get(uuid, HeldMemory(had, 0)))


def _as_draining(pod: PodState, uuid: str) -> Iterator[DrainingShare]:
    """Yield what a pod holds of a GPU as what drains: a share with its part of the memory, and one that records it."""
    milli, memory = pod.held[uuid], pod.held_memory.get(uuid)
    if memory and memory.recorded:
        yield DrainingShare(uuid, milli, memory=memory.recorded)
    if memory is None or memory.milli:
        yield DrainingShare(uuid, memory.milli if memory else milli)


def overlaid(state: PodState, pending_write: PendingWrite) -> PodState:
    """Return a pod with what its write in flight gives it, and with what it takes away until it is confirmed."""
    after = replace(state, allocated=pending_write.allocated, node=pending_write.node)
    lost = [uuid for uuid in state.held if not _covers(after, state, uuid)]
    if not lost:
        return after
    attached = state.attached or Attached(0)
    others = tuple(item for item in attached.draining if item.uuid not in lost)
    leaving = tuple(item for uuid in lost for item in _as_draining(state, uuid))
    return replace(after, attached=replace(attached, draining=others + leaving))
