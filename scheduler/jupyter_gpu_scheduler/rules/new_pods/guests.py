"""New pods that start as guests: preemptible ones that no free GPU can serve, where a GPU of others rests.

Such a pod is bound with what the node's next decision would give it: memory that nobody has booked, no time, and a
ticket for what it asked for. So it takes nothing that any other pod could have, and stands in that node's line.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu_scheduler.rules.pairs.pod_nodes import takes
from jupyter_gpu_scheduler.rules.queue.candidates import unacceptable
from jupyter_gpu_scheduler.rules.queue.decide import as_guest
from jupyter_gpu_scheduler.rules.queue.fit_cache import wanted
from jupyter_gpu_scheduler.rules.queue.lending import Host, guest_share, may_be_guest, working
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .nominate import is_early

MOST = 20
"""Nodes where a pod could be a guest that kube-scheduler may choose from: each is examined for this pod."""


def guest_nodes(snapshot: ClusterSnapshot, pod: PodState, names: Iterable[str]) -> tuple[str, ...]:
    """Return the first `MOST` of ``names`` where a pod, which fits nowhere, could start as a guest now."""
    if not _may_ask(snapshot, pod):
        return ()
    before = _waiting_before(snapshot, pod)
    found: list[str] = []
    for name in _with_hosts(snapshot, names):
        if len(found) < MOST and _starts(snapshot, pod, name, before):
            found.append(name)
    return tuple(found)


def guest_on(snapshot: ClusterSnapshot, pod: PodState, name: str) -> Allocated | None:
    """Return what the Binding of a pod to a node carries that starts there as a guest; ``None``: it can't now.

    It can only where kube-scheduler was told that no node has room for it.
    """
    if pod.offered is None or name not in pod.offered or not _may_ask(snapshot, pod):
        return None
    able = any(True for _ in _with_hosts(snapshot, (name,)))
    return _starts(snapshot, pod, name, _waiting_before(snapshot, pod)) if able else None


def could_be_guest(snapshot: ClusterSnapshot, pod: PodState) -> bool:
    """Tell whether a waiting pod could start as a guest on a node that kube-scheduler offered."""
    return bool(pod.offered and guest_nodes(snapshot, pod, pod.offered))


def next_guests(snapshot: ClusterSnapshot) -> Iterator[PodState]:
    """Yield of each kind that waits the next pod that may be a guest."""
    if not snapshot.lends:
        return
    for line in tuple(snapshot.kinds().values()):
        waiting = (pod for uid in line if (pod := snapshot.pod(uid)) and not pod.blocked)
        found = next(waiting, None)
        if found and _may_ask(snapshot, found):  # all of one kind are preemptible, or none is
            yield found


def _may_ask(snapshot: ClusterSnapshot, pod: PodState) -> bool:
    wish = wanted(pod)
    return snapshot.lends and wish is not None and may_be_guest(pod, wish) and unacceptable(pod) is None


def _waiting_before(snapshot: ClusterSnapshot, pod: PodState) -> Collection[PodState]:
    """Return the pods that may be guests, too, and wait before this one: they choose first."""
    return [other for other in next_guests(snapshot) if other.uid != pod.uid and other.rank < pod.rank]


def _starts(snapshot: ClusterSnapshot, pod: PodState, name: str, before: Collection[PodState]) -> Allocated | None:
    """Return what a pod is given as a guest on a node with a host, if it may start there now."""
    if not _has_host(snapshot, pod, name) or is_early(snapshot, pod, (name,)) or not takes(snapshot, pod, name):
        return None
    first = (other for other in before if other.offered and name in other.offered)
    if any(_starts(snapshot, other, name, ()) for other in first):
        return None
    return as_guest(snapshot, pod, name)


def _has_host(snapshot: ClusterSnapshot, pod: PodState, name: str) -> bool:
    """Tell whether a GPU of the node may have such a guest, if no other pod waits there."""
    wish = wanted(pod)
    return wish is not None and guest_share(pod, wish, _hosts(snapshot)[name]) is not None


def _with_hosts(snapshot: ClusterSnapshot, names: Iterable[str]) -> Iterator[str]:
    """Yield those of ``names`` that have a GPU which may have a guest: few do, and thousands are asked for."""
    known = _hosts(snapshot)
    for name in names:
        hosts = known.get(name)
        if hosts is None:
            hosts = known[name] = tuple(_resting(snapshot, name))
        if hosts:
            yield name


def _hosts(snapshot: ClusterSnapshot) -> dict[str, tuple[Host, ...]]:
    """Return the GPUs of each node that may have a guest, as far as they are known."""
    known: dict[str, tuple[Host, ...]] = snapshot.memo("hosts of guests")
    return known


def _resting(snapshot: ClusterSnapshot, name: str) -> Iterator[Host]:
    """Yield the GPUs of a node that others have and do not use."""
    pods, outside = snapshot.pods(name), snapshot.facts(name).outside
    for gpu in snapshot.gpus(name) or ():
        held, memory = snapshot.holders(gpu.uuid, name), snapshot.memory_held(gpu.uuid, name)
        host = Host(gpu, held, memory, working(pods, gpu.uuid), (), (), gpu.uuid in outside)
        if gpu.gate and host.has_room("", 1):
            yield host
