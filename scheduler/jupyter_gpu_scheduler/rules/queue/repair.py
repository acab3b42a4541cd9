"""Repair of contradicting records: more than all of one GPU, or of its memory, is allocated.

This happens if two schedulers wrote at once, or another program wrote an annotation that only the scheduler may write.
A pod that has the GPU attached keeps it; among several the one with the lower ticket, then the older pod. A pod to
which it was only allocated keeps it if all that others can open there leaves room: what drains is not free.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_gpu.model.demand import booked
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .decide import Decision


def repair(snapshot: ClusterSnapshot, node: str) -> tuple[Decision, ...]:
    """Return the losses on ``node`` that let every ``allocated`` be true at once; empty where that holds already.

    Apply them before `decide`, which then puts the losing pods in line. What they have attached drains as usual: it is
    not granted again before it is closed.
    """
    lost: dict[str, set[str]] = {}
    for uuid in snapshot.contested(node):
        for pod in _losers(snapshot, node, uuid):
            lost.setdefault(pod.uid, set()).add(uuid)
    return tuple(_loses(snapshot, uid, lost[uid]) for uid in sorted(lost))


def _loses(snapshot: ClusterSnapshot, uid: str, uuids: set[str]) -> Decision:
    pod = snapshot.pod(uid)
    assert pod is not None
    assert pod.allocated is not None
    kept = tuple(share for share in pod.allocated.shares if share.uuid not in uuids)
    return Decision.between(pod, pod.allocated.with_shares(kept, pod.attached))


def _losers(snapshot: ClusterSnapshot, node: str, uuid: str) -> list[PodState]:
    """Return the pods that can't keep their share of a GPU."""
    gpu = next(gpu for gpu in snapshot.gpus(node) or () if gpu.uuid == uuid)
    pods = [pod for uid in snapshot.holders(uuid, node) if (pod := snapshot.pod(uid))]
    open_to = {pod.uid: _held(replace(pod, allocated=None), gpu) for pod in pods}
    claims = {pod.uid: claim for pod in pods if (claim := _allocated(pod, gpu))}
    losers: list[PodState] = []
    whole, kept, held = _Amounts(MILLI_PER_GPU, gpu.memory), _Amounts(), sum(open_to.values(), _Amounts())
    for pod in sorted((pod for pod in pods if pod.uid in claims), key=_claim_order):
        claim, has = claims[pod.uid], open_to[pod.uid]
        if claim.is_within(has) and (kept + claim).is_within(whole):
            kept += claim
        elif not claim.is_within(has) and (held + has.up_to(claim)).is_within(whole):
            held += has.up_to(claim)
        else:
            losers.append(pod)
    return losers


@dataclass(frozen=True, slots=True)
class _Amounts:
    """Amounts of one GPU in the books."""

    milli: int = 0
    memory: int = 0
    """Bytes."""

    def __add__(self, other: _Amounts) -> _Amounts:
        return _Amounts(self.milli + other.milli, self.memory + other.memory)

    def is_within(self, other: _Amounts) -> bool:
        """Tell whether both amounts are at most those of ``other``."""
        return self.milli <= other.milli and self.memory <= other.memory

    def up_to(self, other: _Amounts) -> _Amounts:
        """Return what is missing to those of ``other``."""
        return _Amounts(max(0, other.milli - self.milli), max(0, other.memory - self.memory))


def _claim_order(pod: PodState) -> tuple[bool, int, float, str]:
    """Return the key that sorts pods with the same right to a GPU; the first keeps it."""
    return (pod.ticket is None, pod.ticket or 0, pod.created, pod.uid)


def _held(pod: PodState, gpu: Gpu) -> _Amounts:
    return _Amounts(pod.held.get(gpu.uuid, 0), pod.memory_held(gpu))


def _allocated(pod: PodState, gpu: Gpu) -> _Amounts | None:
    """Return what is allocated to a pod on a GPU; ``None``: nothing."""
    shares = pod.allocated.shares if pod.allocated else ()
    found = next((share for share in shares if share.uuid == gpu.uuid), None)
    return _Amounts(found.milli, booked(gpu.memory, found.milli, found.memory)) if found else None
