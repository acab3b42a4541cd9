"""Pure: the parked bundles that come back now, each as a whole and with its own GPUs: no other one has its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import fits, islands
from jupyter_gpu.model.gpu import GpuShare, total
from jupyter_gpu_scheduler.rules.placement.placement import Arrangement, Spot
from jupyter_gpu_scheduler.rules.state.parked import ParkedPart

Permits = Callable[[Sequence[GpuShare]], bool]
"""Tells whether the limits of GPUs of some models permit a pod to have these shares."""


def returned(
    parked: ParkedPart, wish: Wish, shares: Sequence[GpuShare], spots: Iterable[Spot], permits: Permits
) -> Arrangement:
    """Return the ``shares`` of a pod and those that come back now; what is needed and does not fit yet is owed.

    Of the GPUs of a bundle that has to wait none is given to those behind it.
    """
    able = {spot.gpu.uuid: spot for spot in spots if spot.gpu.healthy}
    found, owed, wanted = list(shares), 0, set[str]()
    for bundle in parked.missing([share.uuid for share in shares], wish.milli - total(shares)):
        if not permits([*found, *bundle]):
            continue
        there = [able[share.uuid].gpu for share in (*found, *bundle) if share.uuid in able]
        joined = len(islands(there, wish.topology)) <= 1
        usable = [(able[share.uuid], share) for share in bundle if share.uuid in able and joined]
        usable = [(spot, share) for spot, share in usable if fits(spot.gpu, wish, share.milli)]
        back = [spot.shared(wish, share.milli) for spot, share in usable if _has_room(spot, wish, share.milli)]
        if len(back) == len(bundle):
            found += back
        else:
            owed += total(bundle)
            wanted |= {share.uuid for _, share in usable}
    return Arrangement(tuple(found), owed, wanted=frozenset(wanted))


def _has_room(spot: Spot, wish: Wish, milli: int) -> bool:
    return spot.room >= milli and spot.has_memory(spot.shared(wish, milli))
