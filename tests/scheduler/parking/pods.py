"""Pods with something parked, resting or ordered, in one line."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.parking import ParkCause, ParkedShare, ParkOrder
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.parked import Parkable
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, NODE, apply, inventory, uuid


def away(index: int, bundle: str = "x", *, milli: int = 1000, since: int = 100, **fields: Any) -> ParkedShare:
    """Return what a bundle has parked of one GPU; ``fields`` are those of `ParkedShare`."""
    return ParkedShare(uuid(index), milli, bundle, 8 * GIB, since, **fields)


def parked(pod: PodState, *shares: ParkedShare) -> PodState:
    """Return a pod of which these are parked; what it has attached stays."""
    return replace(pod, attached=replace(pod.attached or Attached(1), parked=shares))


def rests(pod: PodState, *indexes: int, bundle: str = "x", since: int = 100, size: int = 8, **fields: Any) -> PodState:
    """Return a pod with another bundle that may be parked, of ``size`` GiB; ``fields`` are those of `Parkable`."""
    uuids = frozenset(uuid(index) for index in indexes)
    return replace(pod, parkable=(*pod.parkable, Parkable(bundle, uuids, since, size * GIB, **fields)))


def ordered(pod: PodState, *indexes: int, cause: ParkCause = ParkCause.LINE) -> PodState:
    """Return a pod with orders to park."""
    assert pod.allocated
    orders = tuple(ParkOrder(uuid(index), cause) for index in indexes)
    return replace(pod, allocated=replace(pod.allocated, park=orders))


def node(gpus: int | Sequence[Gpu], pods: Iterable[PodState]) -> ClusterSnapshot:
    """Return one node on which what rests is parked for others."""
    snapshot = ClusterSnapshot(parks=True)
    snapshot.put_node(NODE, inventory(gpus) if isinstance(gpus, int) else tuple(gpus))
    for pod in pods:
        snapshot.put_pod(pod)
    return snapshot


def orders(snapshot: ClusterSnapshot) -> dict[str, list[int]]:
    """Decide, write the decision, and return the GPUs that each pod is to park."""
    apply(snapshot, decide(snapshot, NODE))
    found = {pod.uid: pod.allocated.park for pod in snapshot.pods(NODE) if pod.allocated and pod.allocated.park}
    return {uid: [int(order.uuid.removeprefix("GPU-")) for order in each] for uid, each in found.items()}
