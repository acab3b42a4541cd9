"""Records that contradict each other: one GPU, more than all of it given away. Who keeps it, and who loses it.

It happens where two schedulers wrote at once, or somebody wrote what is not theirs to write. Who has the GPU attached
keeps it before who was only promised it; then who has the lower ticket, then the older pod. What drains and what is
attached without being allocated can't be taken: it counts first.
"""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .decide import Decision
from .snapshot import ClusterSnapshot, PodState


def repair(snapshot: ClusterSnapshot, node: str) -> tuple[Decision, ...]:
    """Who loses which shares on ``node`` so that everybody's ``allocated`` can be true at once; nothing where it can.

    To be applied before `decide`, which then puts the losers in line. What a loser has attached drains as ever: nobody
    gets it before it is closed.
    """
    lost: dict[str, set[str]] = {}
    for uuid in snapshot.contested(node):
        for pod in _losers(snapshot, uuid):
            lost.setdefault(pod.uid, set()).add(uuid)
    return tuple(_loses(snapshot, uid, lost[uid]) for uid in sorted(lost))


def _loses(snapshot: ClusterSnapshot, uid: str, uuids: set[str]) -> Decision:
    pod = snapshot.pod(uid)
    assert pod is not None
    assert pod.allocated is not None
    kept = tuple(share for share in pod.allocated.shares if share.uuid not in uuids)
    return Decision.between(pod, replace(pod.allocated, shares=kept))


def _losers(snapshot: ClusterSnapshot, uuid: str) -> list[PodState]:
    """The pods that can't keep their share of a GPU."""
    pods = [pod for uid in snapshot.holders(uuid) if (pod := snapshot.pod(uid))]
    taken = sum(pod.held[uuid] for pod in pods if uuid not in _allocated(pod))
    losers = []
    for pod in sorted((pod for pod in pods if uuid in _allocated(pod)), key=lambda pod: _claim(pod, uuid)):
        if taken + _allocated(pod)[uuid] <= MILLI_PER_GPU:
            taken += _allocated(pod)[uuid]
        else:
            losers.append(pod)
    return losers


def _claim(pod: PodState, uuid: str) -> tuple[bool, bool, int, float, str]:
    """Sorts pods by who keeps a GPU, first who does."""
    attached = pod.attached is not None and any(share.uuid == uuid for share in pod.attached.shares)
    ticket = pod.ticket
    return (not attached, ticket is None, ticket or 0, pod.created, pod.uid)


def _allocated(pod: PodState) -> dict[str, int]:
    return {share.uuid: share.milli for share in pod.allocated.shares} if pod.allocated else {}

