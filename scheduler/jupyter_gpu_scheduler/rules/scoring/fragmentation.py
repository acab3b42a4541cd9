"""Fragmentation: the part of a node's free GPUs that is useless for the next wish, as FGD measures it.

A free GPU is useless for a wish if the node can't serve the wish at all (other model, too few GPUs, too little CPU),
or if less of it is free than the wish needs of one GPU. The expected useless amount over a typical mix of wishes is
the node's fragmentation. The place where it grows least is the best one: what stays free stays useful.

Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation Gradient Descent", USENIX
ATC 2023.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import fits
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.shape import Pattern, Shape, ShapeGpu, pattern
from jupyter_gpu_scheduler.rules.state.snapshot import CPU

from .policy import MAX_KINDS, Policy, WorkloadKind


def fragmentation(policy: Policy, shape: Shape, cpu: int | None = None) -> float:
    """Return the expected milli of the free GPUs that are useless for a wish of the policy's mix.

    ``cpu``: milli of CPU free on the node; ``None``: not known, and so ignored.
    """
    return _expected(policy, pattern(shape), cpu_level(policy, cpu))


def cpu_level(policy: Policy, cpu: int | None) -> int | None:
    """Return a number that is equal for amounts of CPU that are enough for the same kinds of the mix."""
    return None if cpu is None else bisect_right(_steps(policy), cpu)


@lru_cache(maxsize=64)
def _steps(policy: Policy) -> list[int]:
    return sorted({kind.cpu for kind in policy.workload})


@lru_cache(maxsize=65536)
def _expected(policy: Policy, known: Pattern, level: int | None) -> float:
    free = _free(known.shape)
    shares = sum(kind.share for kind in policy.workload)
    if not free or not shares:
        return 0.0
    steps = _steps(policy)
    enough = steps[-1] if level is None else steps[level - 1] if level else -1
    useless = (_useless(kind.wish, known) if kind.cpu <= enough else free for kind in policy.workload)
    return sum(kind.share * milli for kind, milli in zip(policy.workload, useless, strict=True)) / shares


@lru_cache(maxsize=262144)
def _useless(wish: Wish | None, known: Pattern) -> int:
    """Return the free milli that ``wish`` has no use for; a pod that wants no GPU has use for none."""
    free = _free(known.shape)
    if wish is None or not wish.milli:
        return free
    pieces = wish.pieces
    big, rest = pieces[0], pieces[-1]
    groups: dict[object, list[int]] = {}
    for index, gpu in enumerate(known.shape):
        if gpu.healthy and fits(gpu, wish, big) and gpu.free >= rest:
            groups.setdefault(_group(gpu, index, wish.topology), []).append(gpu.free)
    many, bigs = len(pieces), pieces.count(big)
    useful = (
        sum(group) for group in groups.values() if len(group) >= many and sum(one >= big for one in group) >= bigs
    )
    return free - sum(useful)


def _free(shape: Shape) -> int:
    return sum(gpu.free for gpu in shape if gpu.healthy)


def _group(gpu: ShapeGpu, index: int, topology: str | None) -> object:
    """Return a key that is equal for GPUs of one group, as a wish with this topology needs; ``None``: any GPUs do."""
    if topology not in ("island", "switch"):
        return None
    number = gpu.island if topology == "island" else gpu.switch
    return ("alone", index) if number is None else number


def workload_of(pods: Iterable[PodState]) -> tuple[WorkloadKind, ...]:
    """Return the mix of the wishes of ``pods``, with their CPU, by frequency; the rarest are left out."""
    kinds = Counter(
        (pod.requested.wish if pod.requested and pod.requested.milli else None, pod.asks.get(CPU, 0)) for pod in pods
    )
    count = sum(kinds.values())
    return tuple(WorkloadKind(wish, number / count, cpu) for (wish, cpu), number in kinds.most_common(MAX_KINDS))
