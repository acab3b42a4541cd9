"""Repair of contradicting records: more than all of one GPU is allocated.

This happens if two schedulers wrote at once, or another program wrote an annotation that only the scheduler may write.
A pod that has the GPU attached keeps it; among several the one with the lower ticket, then the older pod. A pod to
which it was only allocated keeps it if all that others can open there leaves room: what drains is not free.
"""

from __future__ import annotations

from dataclasses import replace

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
    pods = [pod for uid in snapshot.holders(uuid, node) if (pod := snapshot.pod(uid))]
    open_to = {pod.uid: replace(pod, allocated=None).held.get(uuid, 0) for pod in pods}
    claims = {pod.uid: _allocated(pod)[uuid] for pod in pods if uuid in _allocated(pod)}
    losers: list[PodState] = []
    kept, held = 0, sum(open_to.values())
    for pod in sorted((pod for pod in pods if pod.uid in claims), key=_claim_order):
        claim, has = claims[pod.uid], open_to[pod.uid]
        if claim <= has and kept + claim <= MILLI_PER_GPU:
            kept += claim
        elif claim > has and held - has + claim <= MILLI_PER_GPU:
            held += claim - has
        else:
            losers.append(pod)
    return losers


def _claim_order(pod: PodState) -> tuple[bool, int, float, str]:
    """Return the key that sorts pods with the same right to a GPU; the first keeps it."""
    return (pod.ticket is None, pod.ticket or 0, pod.created, pod.uid)


def _allocated(pod: PodState) -> dict[str, int]:
    return {share.uuid: share.milli for share in pod.allocated.shares} if pod.allocated else {}
