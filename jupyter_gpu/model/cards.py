"""The GPUs of a pod as its user sees them: one card for each; pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING

from .annotations import Allocated, Attached
from .gpu import Gpu, Holder
from .quantity import MILLI_PER_GPU
from .stranger import MAX_STRANGERS, Stranger
from .view import GpuState, GpuUser, PodGpu

if TYPE_CHECKING:  # loaded with the first park
    from .parking import ParkedMemory, ParkedShare


def cards(
    allocated: Allocated | None,
    attached: Attached | None,
    gpus: Mapping[str, Gpu],
    holders: Mapping[str, Iterable[Holder]],
    strangers: Mapping[str, Sequence[Stranger]] = MappingProxyType({}),
) -> tuple[PodGpu, ...]:
    """Make a card for each GPU that the pod was granted, can open, has parked or has not given back, by index.

    ``gpus``: every GPU ever seen here, by uuid. ``holders``: processes that had it open at the last scan.
    ``strangers``: processes that use it without having been given it.
    """
    granted = {share.uuid: share for share in allocated.shares} if allocated else {}
    usable = {share.uuid: share for share in attached.shares} if attached else {}
    leaving = {item.uuid: item for item in attached.draining} if attached else {}
    parked = _by_uuid(attached.parked if attached else ())

    def card(uuid: str) -> PodGpu:
        gpu = gpus[uuid]
        memory = _memory(parked[uuid]) if uuid in parked else None
        if uuid in leaving and uuid not in granted:
            return PodGpu(gpu, leaving[uuid].milli, GpuState.DRAINING, users(leaving[uuid].holders), parked=memory)
        away = [share for share in parked.get(uuid, ()) if not share.kept]
        needed = any(share.needed for share in away)
        if away and (needed or uuid not in usable):
            milli = min(MILLI_PER_GPU, sum(share.milli for share in away))
            return PodGpu(gpu, milli, GpuState.RETURNING if needed else GpuState.PARKED, parked=memory)
        state = GpuState.ATTACHED if uuid in usable else GpuState.ATTACHING
        share = usable.get(uuid) or granted[uuid]
        beside = tuple(strangers.get(uuid, ()))[:MAX_STRANGERS]
        outside = {stranger.pid for stranger in beside}
        inside = users(holder for holder in holders.get(uuid, ()) if holder.pid not in outside)
        state = state if gpu.healthy else GpuState.UNHEALTHY
        memory = memory if uuid in usable else None
        keeps = share.memory if share.lendable else 0
        return PodGpu(gpu, share.milli, state, inside, beside, keeps=keeps, parked=memory)

    there = (uuid for uuid in granted.keys() | usable.keys() | leaving.keys() | parked.keys() if uuid in gpus)
    return tuple(sorted((card(uuid) for uuid in there), key=lambda card: card.gpu.index))


def _by_uuid(parked: Iterable[ParkedShare]) -> dict[str, list[ParkedShare]]:
    found: dict[str, list[ParkedShare]] = {}
    for share in parked:
        found.setdefault(share.uuid, []).append(share)
    return found


def _memory(shares: Sequence[ParkedShare]) -> ParkedMemory:
    from .parking import ParkedMemory

    return ParkedMemory.of(shares)


def users(holders: Iterable[Holder]) -> tuple[GpuUser, ...]:
    """Return the processes as the view has them; the server adds the notebooks."""
    return tuple(GpuUser(pid=holder.pid, command=holder.command, foreign=holder.foreign) for holder in holders)
