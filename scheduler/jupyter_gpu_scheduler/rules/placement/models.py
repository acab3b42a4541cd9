"""Allowances for GPUs of some models, on nodes that have others, too: they bound which GPUs a pod sees.

A pod sees so many GPUs of a model that its largest shares on them stay within the allowance: those that it has first,
then the ones with the most room. A GPU that it does not see is given back, or not given. If the GPUs that it sees can't
serve the whole wish, they serve as much of it as they can.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import groups, named, topology_group
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.state.permitted import permitted

from .placement import Spot

ModelAllowances = tuple[tuple[str, int], ...]
"""Milli by words of a model."""


def within_models(wish: Wish, spots: Sequence[Spot], allowances: ModelAllowances) -> tuple[Wish, list[Spot]]:
    """Return the part of ``wish`` that the allowances leave feasible on a node, and the GPUs for it, by index."""
    seen = list(spots)
    for words, allowance in allowances:
        such = [spot for spot in seen if named(spot.gpu.model, words)]
        count = sum(amount <= allowance for amount in accumulate(wish.pieces))
        hidden = {spot.gpu.uuid for spot in sorted(such, key=_order(wish, such))[count:]}
        seen = [spot for spot in seen if spot.gpu.uuid not in hidden]
    return _feasible(wish, [spot.gpu for spot in seen]), seen


def _order(wish: Wish, spots: Sequence[Spot]) -> Callable[[Spot], tuple[object, ...]]:
    """Return the key that sorts GPUs by which ones a pod sees first."""
    joined: dict[tuple[str, str], int] = {}
    for spot in spots:
        group = _group(wish, spot.gpu)
        joined[group] = joined.get(group, 0) + 1
    owns = {_group(wish, spot.gpu) for spot in spots if spot.share}

    def key(spot: Spot) -> tuple[object, ...]:
        group = _group(wish, spot.gpu)
        own = (not (spot.share and spot.busy), not spot.share, not spot.held)
        return (group not in owns, -joined[group], group, *own, -spot.room, spot.gpu.index, spot.gpu.uuid)

    return key


def _group(wish: Wish, gpu: Gpu) -> tuple[str, str]:
    return topology_group(gpu, wish.topology) if wish.topology in ("island", "switch") else ("all", "")


def _feasible(wish: Wish, gpus: Sequence[Gpu]) -> Wish:
    """Return the largest part of a wish, in whole shares, that ``gpus`` could serve if all were free."""
    parts = (permitted(wish, amount) for amount in reversed([0, *accumulate(wish.pieces)]))
    return next(part for part in parts if not part.milli or groups(gpus, part))
