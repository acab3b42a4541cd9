"""Pure: ratings of nodes, each between 0 and 1, as `policy` lists them; and weights of many of them together."""

from __future__ import annotations

import math
from collections.abc import Mapping

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.queue.fit_cache import Fit
from jupyter_gpu_scheduler.rules.state.fastest import FULL
from jupyter_gpu_scheduler.rules.state.shape import Grant, Shape, ShapeGpu, after
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, NodeFacts

from .fragmentation import cpu_level, fragmentation
from .policy import HEADROOM, UNKNOWN, Policy, preferred


class Growth:
    """Growth of fragmentation by grants, computed once for nodes with such GPUs and CPU for the same wishes."""

    def __init__(self, policy: Policy) -> None:
        self._policy = policy
        self._known: dict[tuple[Fit, int | None, int | None], float] = {}

    def of(self, found: Fit, facts: NodeFacts, taken: int) -> float:
        """Return how many more milli are useless once the grants are given and ``taken`` milli of CPU are gone.

        Below 0: the grants take what was useless anyway.
        """
        policy, cpu, rest = self._policy, cpu_left(facts, 0), cpu_left(facts, taken)
        key = (found, cpu_level(policy, cpu), cpu_level(policy, rest))
        known = self._known.get(key)
        if known is None:
            before, later = found.shape, after(found.shape, found.grants)
            known = self._known[key] = fragmentation(policy, later, rest) - fragmentation(policy, before, cpu)
        return known


def cpu_left(facts: NodeFacts, taken: int, *, really: bool = False) -> int | None:
    """Return the free milli of CPU of a node once ``taken`` more are gone; ``None``: not known.

    By what its pods ask for; ``really``: or by what is in use, if that leaves less.
    """
    there = facts.allocatable.get(CPU)
    return None if there is None else there - _taken(facts, CPU, there, really=really) - taken


def _taken(facts: NodeFacts, name: str, there: int, *, really: bool) -> int:
    """Return what of ``there`` is taken: by requests, or if more by what is ``really`` in use."""
    asked, busy = facts.used.get(name, 0), facts.busy.get(name) if really else None
    return asked if busy is None else max(asked, round(there * busy))


def weighted(weights: Mapping[str, float], ratings: Mapping[str, float]) -> float:
    """Return the sum of ratings, each times its weight; a negative weight counts what is missing to 1."""
    return sum(_term(weights[name], rating) for name, rating in ratings.items() if name in weights)


def _term(weight: float, rating: float) -> float:
    return weight * rating if weight > 0 else -weight * (1 - rating)


def rate_gpus(policy: Policy, found: Fit) -> dict[str, float]:
    """Rate what depends on the GPUs alone, once the grants are given."""
    shape, grants = found.shape, found.grants
    gpus = [gpu for gpu in after(shape, grants) if gpu.healthy]
    memory = sum(gpu.memory for gpu in gpus)
    free_memory = sum(_free_memory(gpu) for gpu in gpus)
    compute = sum(gpu.free * gpu.pace for gpu in gpus)
    return {
        "together": _together(shape, grants),
        "preference": _preference(policy, shape, grants),
        "gpu_free": sum(gpu.free for gpu in gpus) / (MILLI_PER_GPU * len(gpus)) if gpus else UNKNOWN,
        "gpu_compute_free": compute / (MILLI_PER_GPU * FULL * len(gpus)) if gpus else UNKNOWN,
        "gpu_memory_free": free_memory / (MILLI_PER_GPU * memory) if memory else UNKNOWN,
    }


def _free_memory(gpu: ShapeGpu) -> int:
    """Return the free bytes of a GPU, times the milli of a whole one."""
    return gpu.memory * gpu.free if gpu.free_memory is None else MILLI_PER_GPU * max(0, gpu.free_memory)


def less_fragmentation(growth: float) -> float:
    """Rate how much fragmentation the grants add, in milli: 0.5 for none, less the more they add.

    To take what was useless anyway reduces fragmentation, and is rated above 0.5.
    """
    return 1 / (1 + math.exp(max(-50.0, min(50.0, growth / MILLI_PER_GPU))))


def _together(shape: Shape, grants: tuple[Grant, ...]) -> float:
    """Rate how close the granted GPUs are to each other, 0 to 1."""
    if len(grants) < 2:
        return 1.0
    switches = {(shape[index].switch, index if shape[index].switch is None else -1) for index, _ in grants}
    groups = {(shape[index].island, index if shape[index].island is None else -1) for index, _ in grants}
    if len(groups) > 1:
        return 0.5 / len(groups)
    return 1.0 if len(switches) == 1 else 0.75


def _preference(policy: Policy, shape: Shape, grants: tuple[Grant, ...]) -> float:
    """Return the mean preference for the granted GPUs."""
    if not grants:
        return UNKNOWN
    return sum(_preferred(policy, shape[index]) for index, _ in grants) / len(grants)


def _preferred(policy: Policy, gpu: ShapeGpu) -> float:
    return preferred(policy, gpu.model, gpu.priority, slow=gpu.slow)


def counts_use(weights: Mapping[str, float]) -> frozenset[str]:
    """Return the attributes for which real use counts: one with a negative weight packs, and that is by requests."""
    return frozenset(name for name, weight in weights.items() if weight > 0)


def part_left(facts: NodeFacts, name: str, asks: Mapping[str, int], *, really: bool) -> float:
    """Return the part of a resource that is left after the pod has come, 0 to 1; ``really``: as in `cpu_left`."""
    there = facts.allocatable.get(name)
    if not there:
        return UNKNOWN
    return max(0.0, min(1.0, (there - _taken(facts, name, there, really=really) - asks.get(name, 0)) / there))


def idle(facts: NodeFacts) -> float:
    """Return the part of the node's network that is not in use, 0 to 1."""
    return UNKNOWN if facts.network is None else max(0.0, min(1.0, 1 - facts.network))


def cpu_headroom(left: int | None, free: int, headroom: int = HEADROOM) -> float:
    """Rate the CPU that is left for the free GPUs, 0 to 1: ``left`` milli of CPU, ``free`` milli of GPUs.

    1 where no GPU is free, and where each free GPU has ``headroom`` milli of CPU; ``left`` is ``None``: not known.
    """
    if not free or not headroom:
        return 1.0
    return UNKNOWN if left is None else max(0.0, min(1.0, left * MILLI_PER_GPU / (headroom * free)))


def free_after(found: Fit) -> int:
    """Return the milli of GPUs that work and are free once the grants are given."""
    return sum(gpu.free for gpu in found.shape if gpu.healthy) - sum(milli for _, milli in found.grants)
