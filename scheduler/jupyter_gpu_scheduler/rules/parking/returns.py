"""Pure: the parked bundles that come back now, each as a whole and with its own GPUs: no other one has its data."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.gpu import GpuShare, total
from jupyter_gpu_scheduler.rules.placement.placement import Arrangement, Spot
from jupyter_gpu_scheduler.rules.state.parked import Bundle, ParkedPart

Permits = Callable[[Sequence[GpuShare]], bool]
"""Tells whether the limits of GPUs of some models permit a pod to have these shares."""


def returned(
    parked: ParkedPart, wish: Wish, shares: Sequence[GpuShare], spots: Iterable[Spot], permits: Permits
) -> Arrangement:
    """Return the ``shares`` of a pod and those that come back now; what is needed and does not fit yet is owed.

    Of the GPUs of a bundle that has to wait none is given to those behind it.
    """
    by_uuid = {spot.gpu.uuid: spot for spot in spots}
    found, owed, wanted = list(shares), 0, set[str]()
    for bundle in parked.missing([share.uuid for share in shares], wish.milli - total(shares)):
        back = _fitting(bundle, by_uuid, wish)
        if not permits([*found, *bundle]):
            continue
        if len(back) == len(bundle):
            found += back
        else:
            owed += total(bundle)
            wanted |= {uuid for share in bundle if (uuid := share.uuid) in by_uuid and by_uuid[uuid].gpu.healthy}
    return Arrangement(tuple(found), owed, wanted=frozenset(wanted))


def _fitting(bundle: Bundle, spots: dict[str, Spot], wish: Wish) -> list[GpuShare]:
    """Return those shares of a bundle for which there is room now."""
    found = []
    for share in bundle:
        spot = spots.get(share.uuid)
        if spot is None or not spot.gpu.healthy or spot.room < share.milli:
            continue
        back = spot.shared(wish, share.milli)
        if spot.has_memory(back):
            found.append(back)
    return found
