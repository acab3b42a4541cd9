"""Totals of a node that a pod may know: sums that identify no other pod. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.machine import Shown, Totals
from jupyter_gpu.model.overview import ServerClaim, overview
from jupyter_gpu_node.agent.pod import ManagedPod


def totals(gpus: tuple[Gpu, ...], pods: Iterable[ManagedPod]) -> Totals:
    """Return the totals of the GPUs that this node manages and of the pods that have a slot on it."""
    return overview(gpus, (_claim(pod) for pod in pods), {}, Shown.TOTALS).totals


def _claim(pod: ManagedPod) -> ServerClaim:
    holding = pod.holding
    held = {
        uuid: max(holding.has.get(uuid, 0), holding.drains.get(uuid, 0)) for uuid in {*holding.has, *holding.drains}
    }
    allocated = pod.view.allocated if pod.view and not pod.view.finished else None
    waits = allocated is not None and allocated.ticket is not None
    return ServerClaim(pod.uid, "", mine=False, held=held, owed=1 if waits else 0)
