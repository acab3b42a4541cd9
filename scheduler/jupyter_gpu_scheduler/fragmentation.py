"""How much of a node's free GPUs is of no use for the next wish: the measure of FGD.

A free GPU is useless for a wish if the node can't serve the wish at all (other model, too few GPUs, too little CPU),
or if less of it is free than the wish needs of one GPU. The expected useless amount over a typical mix of wishes is
the node's fragmentation. The place where it grows least is the best one: what stays free stays useful.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
ATC 2023.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.gpu import Gpu

from .placement import fits, islands
from .policy import MAX_KINDS, Kind, Policy
from .shape import Shape, gpus_of
from .snapshot import CPU, PodState


def fragmentation(policy: Policy, shape: Shape, cpu: int | None = None) -> float:
    """Expected milli of the free GPUs that are useless for a wish of the policy's mix.

    ``cpu``: milli of CPU free on the node; ``None``: not known, so not looked at.
    """
    able = tuple(cpu is None or kind.cpu <= cpu for kind in policy.workload)
    return _expected(policy, shape, able)


@lru_cache(maxsize=65536)
def _expected(policy: Policy, shape: Shape, able: tuple[bool, ...]) -> float:
    free = sum(cell.free for cell in shape if cell.healthy)
    shares = [kind.share for kind in policy.workload]
    if not free or not any(shares):
        return 0.0
    lost = (
        kind.share * (_useless(kind.wish, shape) if fed else free)
        for kind, fed in zip(policy.workload, able, strict=True)
    )
    return sum(lost) / sum(shares)


@lru_cache(maxsize=262144)
def _useless(wish: Wish | None, shape: Shape) -> int:
    """Milli of the free GPUs that ``wish`` has no use for; a pod that wants no GPU has use for none."""
    free = sum(cell.free for cell in shape if cell.healthy)
    if wish is None or not wish.milli:
        return free
    useful = [_useful(wish, shape, group) for group in islands(_working(wish, shape), wish.topology)]
    return free - sum(useful)


def _working(wish: Wish, shape: Shape) -> list[Gpu]:
    return [gpu for gpu in gpus_of(shape) if gpu.healthy and fits(gpu, wish, wish.pieces[0])]


def _useful(wish: Wish, shape: Shape, group: Iterable[Gpu]) -> int:
    pieces = wish.pieces
    free = [shape[gpu.index].free for gpu in group]
    enough = [milli for milli in free if milli >= pieces[-1]]
    if len(enough) < len(pieces) or sum(milli >= pieces[0] for milli in enough) < pieces.count(pieces[0]):
        return 0
    return sum(enough)


def workload_of(pods: Iterable[PodState]) -> tuple[Kind, ...]:
    """The mix that ``pods`` are: wishes, with the CPU that comes with them, by how often; the rarest are left out."""
    kinds = Counter(
        (pod.requested.wish if pod.requested and pod.requested.milli else None, pod.asks.get(CPU, 0)) for pod in pods
    )
    count = sum(kinds.values())
    return tuple(Kind(wish, number / count, cpu) for (wish, cpu), number in kinds.most_common(MAX_KINDS))
