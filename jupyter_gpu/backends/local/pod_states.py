"""The other pods of the machine as the scheduler sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.demand import part
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

from .records.other_pods import NODE, OtherPod


def states(
    other_pods: Iterable[OtherPod],
    own: PodState,
    gpus: Iterable[Gpu],
    overdue: Callable[[Allocated | None], bool],
) -> tuple[PodState, ...]:
    """Return the others as the scheduler sees them, beside the pod of this server, for which ``own`` was decided.

    What they were granted counts as held already: a decision may take it away again, but only their own server can
    carry that out, and no other pod gets it before that is written. Claims beyond the whole of a GPU, and beyond its
    memory, do not count, so a false record cannot take a GPU from a pod that has it. ``overdue``: tells whether a pod
    with that place in line has waited for too long. A record can claim that falsely, as it can claim any priority.
    """
    left = _Left(own, gpus)
    return tuple(
        replace(_state(other_pod, left), overdue=overdue(other_pod.record.allocated)) for other_pod in other_pods
    )


class _Left:
    """The milli and the memory of each GPU that are left for claims of other pods."""

    def __init__(self, own: PodState, gpus: Iterable[Gpu]) -> None:
        self._gpus = {gpu.uuid: gpu for gpu in gpus}
        self._milli = {uuid: MILLI_PER_GPU - own.held.get(uuid, 0) for uuid in own.held}
        self._memory = {uuid: gpu.memory - own.memory_held(gpu) for uuid, gpu in self._gpus.items()}

    def believe(self, claimed: PodState) -> dict[str, GpuShare]:
        """Return by uuid what a pod claims to hold, as far as it is left; that is not left for others."""
        believed = {}
        for uuid, milli in claimed.held.items():
            room = self._milli.setdefault(uuid, MILLI_PER_GPU)
            if got := min(milli, room):
                self._milli[uuid] = room - got
                believed[uuid] = GpuShare(uuid, got, self._believed_memory(claimed, uuid, got))
        return believed

    def _believed_memory(self, claimed: PodState, uuid: str, milli: int) -> int:
        """Return the memory that a believed share records; 0: its part. Of a GPU that is not known, what is claimed."""
        gpu, recorded = self._gpus.get(uuid), claimed.held_memory.get(uuid)
        if gpu is None:
            return recorded.recorded if recorded else 0
        got = min(recorded.booked(gpu.memory) if recorded else part(gpu.memory, milli), self._memory[uuid])
        self._memory[uuid] -= got
        return max(1, got) if recorded else 0


def _state(other_pod: OtherPod, left: _Left) -> PodState:
    record = other_pod.record
    believed = left.believe(PodState(other_pod.uid, NODE, None, record.allocated, record.attached))
    allocated = record.allocated
    if allocated:
        kept = (_within(share, believed[share.uuid]) for share in allocated.shares if share.uuid in believed)
        allocated = replace(allocated, shares=tuple(kept))
    return PodState(
        uid=other_pod.uid,
        node=NODE,
        requested=None if other_pod.dead else record.requested,
        allocated=None if other_pod.dead else allocated,
        # All that is held is named here, what was revoked just before too.
        attached=Attached(
            0,
            tuple(believed.values()),
            revision=allocated.revision if allocated else 0,
        ),
        limit=record.limit,
        gone=other_pod.dead,
    )


def _within(share: GpuShare, believed: GpuShare) -> GpuShare:
    """Return what is believed of an allocated share."""
    memory = min(share.memory, believed.memory)
    return GpuShare(share.uuid, min(share.milli, believed.milli), memory)


def unknown(gpus: Iterable[Gpu], others: Iterable[PodState], own: PodState) -> PodState:
    """Return a stand-in for pods with damaged records: what they hold is unknown, so it is all that is left."""
    pods, draining = (own, *others), []
    for gpu in gpus:
        milli = MILLI_PER_GPU - sum(pod.held.get(gpu.uuid, 0) for pod in pods)
        memory = gpu.memory - sum(pod.memory_held(gpu) for pod in pods)
        if milli > 0:
            recorded = any(gpu.uuid in pod.held_memory for pod in pods)
            draining.append(DrainingShare(gpu.uuid, milli, memory=max(1, memory) if recorded else 0))
    return PodState("damaged", NODE, attached=Attached(0, draining=tuple(draining)), gone=True)
