"""The other pods of the machine as the scheduler sees them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import DrainingShare, Gpu, GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

from .records.other_pods import NODE, OtherPod


def states(
    other_pods: Iterable[OtherPod], own: Mapping[str, int], overdue: Callable[[Allocated | None], bool]
) -> tuple[PodState, ...]:
    """Return the others as the scheduler sees them, beside a pod that holds ``own`` milli by uuid.

    What they were granted counts as held already: a decision may take it away again, but only their own server can
    carry that out, and no other pod gets it before that is written. Claims beyond the whole of a GPU do not count, so a
    false record cannot take a GPU from a pod that has it. ``overdue``: tells whether a pod with that place in line has
    waited for too long. A record can claim that falsely, as it can claim any priority.
    """
    left: dict[str, int] = {}
    return tuple(
        replace(_state(other_pod, own, left), overdue=overdue(other_pod.record.allocated)) for other_pod in other_pods
    )


def _state(other_pod: OtherPod, own: Mapping[str, int], left: dict[str, int]) -> PodState:
    record = other_pod.record
    believed: dict[str, int] = {}
    for uuid, milli in other_pod.held.items():
        room = left.setdefault(uuid, MILLI_PER_GPU - own.get(uuid, 0))
        if got := min(milli, room):
            believed[uuid] = got
            left[uuid] = room - got
    allocated = record.allocated
    if allocated:
        kept = (GpuShare(s.uuid, min(s.milli, believed[s.uuid])) for s in allocated.shares if s.uuid in believed)
        allocated = replace(allocated, shares=tuple(kept))
    return PodState(
        uid=other_pod.uid,
        node=NODE,
        requested=None if other_pod.dead else record.requested,
        allocated=None if other_pod.dead else allocated,
        # All that is held is named here, what was revoked just before too.
        attached=Attached(
            0,
            tuple(GpuShare(uuid, milli) for uuid, milli in believed.items()),
            revision=allocated.revision if allocated else 0,
        ),
        limit=record.limit,
        gone=other_pod.dead,
    )


def unknown(gpus: Iterable[Gpu], others: Iterable[PodState], own: Mapping[str, int]) -> PodState:
    """Return a stand-in for pods with damaged records: what they hold is unknown, so it is all that is left."""
    rest = {gpu.uuid: MILLI_PER_GPU - own.get(gpu.uuid, 0) for gpu in gpus}
    for other in others:
        for uuid, milli in other.held.items():
            if uuid in rest:
                rest[uuid] -= milli
    draining = tuple(DrainingShare(uuid, milli) for uuid, milli in rest.items() if milli > 0)
    return PodState("damaged", NODE, attached=Attached(0, draining=draining), gone=True)
