"""Totals of a node that a pod may know: sums that identify no other pod. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.machine import Shown, Totals
from jupyter_gpu.model.overview import ServerClaim, overview
from jupyter_gpu_node.agent.pod import Member


def totals(gpus: tuple[Gpu, ...], members: Iterable[Member]) -> Totals:
    """Return the totals of the GPUs that this node manages and of the pods that have a slot on it."""
    return overview(gpus, (_claim(member) for member in members), {}, Shown.TOTALS).totals


def _claim(member: Member) -> ServerClaim:
    holding = member.holding
    held = {
        uuid: max(holding.has.get(uuid, 0), holding.drains.get(uuid, 0)) for uuid in {*holding.has, *holding.drains}
    }
    allocated = member.view.allocated if member.view and not member.view.finished else None
    waits = allocated is not None and allocated.ticket is not None
    return ServerClaim(member.uid, "", mine=False, held=held, owed=1 if waits else 0)
