"""Scores of places for a pod.

A pod that wants no GPU yet is rated by what it can expect there later.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.queue.fit_cache import Fit, fit_on, fits_on, known_fits, wanted
from jupyter_gpu_scheduler.rules.state.shape import Grant, Shape, after
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, DISK, MEMORY, ClusterSnapshot, NodeFacts, PodState

from .expectation import Expectation, expectation
from .fragmentation import cpu_level, fragmentation
from .policy import UNKNOWN, WITH_WISH, WITHOUT_SLOT, WITHOUT_WISH, Policy, preferred

BEST = 10
"""The highest score that kube-scheduler takes from an extender."""
NEAR = 0.0025
"""Scores that differ by less from the best are equal to kube-scheduler, so that its own plugins decide between them."""
NONE_COMING: Mapping[str, float] = MappingProxyType({})
_RESOURCES = (("cpu_free", CPU), ("memory_free", MEMORY), ("disk_free", DISK))


@dataclass(frozen=True, slots=True)
class Place:
    """A node for a pod, and the node of its GPUs."""

    pod_node: str
    gpu_node: str


def place_score(snapshot: ClusterSnapshot, pod: PodState, place: Place, policy: Policy) -> float:
    """Return the score of ``place``, 0 to 1, whatever is free there now."""
    found, _ = fit_on(snapshot, pod, place.gpu_node, known_fits(snapshot, pod))
    expected = expectation(snapshot, place.gpu_node, policy, _sought(pod))
    scorer = _Scorer(policy, pod)
    return scorer.score(found, expected, snapshot.facts(place.gpu_node), snapshot.facts(place.pod_node), place)


def prioritize(
    snapshot: ClusterSnapshot,
    pod: PodState,
    names: Sequence[str],
    policy: Policy,
    coming: Mapping[str, float] = NONE_COMING,
) -> dict[str, int]:
    """Return 0 to 10 for each of ``names``, GPUs on the pod's own node: 10 for the best and for all `NEAR` to it.

    The others are distinguished as far as they differ: a step is a tenth of what is between the best and the worst, and
    never less than `NEAR`. A node where the wish can't be had now gets 0. ``coming``: how many pods without GPUs are on
    their way to a node, by its name.
    """
    scores = dict(_scores(snapshot, pod, names, policy, coming, fitting=True))
    priorities = dict.fromkeys(names, 0)
    if not scores:
        return priorities
    high = max(scores.values())
    step = max((high - min(scores.values())) / BEST, NEAR)
    for name, score in scores.items():
        behind = 0 if high - score < NEAR else max(1, int((high - score) / step))
        priorities[name] = max(0, BEST - behind)
    return priorities


def best(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy) -> str | None:
    """Return the best of ``names`` for ``pod``, the first by name of equals; ``None`` where it fits nowhere."""
    scores = dict(_scores(snapshot, pod, names, policy, NONE_COMING, fitting=True))
    return min(scores, key=lambda name: (-scores[name], name)) if scores else None


def node_score(snapshot: ClusterSnapshot, pod: PodState, name: str, policy: Policy) -> float:
    """Return the score of a node with its own GPUs, 0 to 1, from cached results where they still hold."""
    return next(score for _, score in _scores(snapshot, pod, (name,), policy, NONE_COMING, fitting=False))


def _scores(
    snapshot: ClusterSnapshot,
    pod: PodState,
    names: Iterable[str],
    policy: Policy,
    coming: Mapping[str, float],
    *,
    fitting: bool,
) -> Iterator[tuple[str, float]]:
    """Yield names and scores; ``fitting``: only where the pod fits."""
    sought = _sought(pod)
    question = (pod.wish, pod.slots, *(pod.asks.get(name, 0) for name in (CPU, MEMORY, DISK)))
    answers: dict[str, tuple[Fit, float]] = snapshot.memo(("score", policy, question))
    scorer = _Scorer(policy, pod)
    for name, found, _ in fits_on(snapshot, pod, names):
        if name in coming and found.fits:
            facts, expected = snapshot.facts(name), expectation(snapshot, name, policy, sought)
            yield name, scorer.score(found, expected.with_more(coming[name]), facts, facts)
        elif found.fits or not fitting:
            known = answers.get(name)
            if known is None or known[0] is not found:  # another fit where other pods are ahead
                facts, expected = snapshot.facts(name), expectation(snapshot, name, policy, sought)
                known = answers[name] = (found, scorer.score(found, expected, facts, facts))
            yield name, known[1]


def _sought(pod: PodState) -> Wish | None:
    """Return which GPUs a pod that wants none yet may want, as a wish; ``None``: unknown, or chosen already."""
    return pod.wish if wanted(pod) is None else None


class _Scorer:
    """Scores of places for one pod; parts that places share are computed once."""

    def __init__(self, policy: Policy, pod: PodState) -> None:
        self._policy = policy
        self._asks = pod.asks
        self._wants = wanted(pod) is not None
        meant = WITH_WISH if self._wants else WITHOUT_WISH if pod.slots else WITHOUT_SLOT
        self._weights = {name: weight for name, weight in policy.weights.items() if name in meant}
        self._total = sum(map(abs, self._weights.values()))
        self._gpu_scores: dict[Fit, float] = {}
        self._fragmentation: dict[tuple[Fit, int | None, int | None], float] = {}

    def score(
        self, found: Fit, expected: Expectation, there: NodeFacts, here: NodeFacts, place: Place | None = None
    ) -> float:
        """Score a place: GPUs on a node with the facts ``there``, the pod on one ``here``; no ``place``: one node."""
        if not self._total:
            return UNKNOWN
        local = place is None or place.pod_node == place.gpu_node
        weights = self._weights
        ratings = {name: _part_left(here, key, self._asks) for name, key in _RESOURCES if name in weights}
        if "fragmentation" in weights:
            ratings["fragmentation"] = self._rate_fragmentation(found, there, self._asks.get(CPU, 0) if local else 0)
        if "network_free" in weights:
            ratings["network_free"] = _idle(here) if local else min(_idle(here), _idle(there))
        if not self._wants:
            return self._weighted({**ratings, "expected": expected.of_one_more, "preference": expected.preferred})
        gpus = self._gpu_scores.get(found)
        if gpus is None:
            gpus = self._gpu_scores[found] = self._weighted(_rate_gpus(self._policy, found.shape, found.grants))
        ratings["local"] = float(local)
        ratings["left_for_others"] = expected.of_others(sum(milli for _, milli in found.grants))
        return gpus + self._weighted(ratings)

    def _weighted(self, ratings: Mapping[str, float]) -> float:
        """Return the part of the score that ``ratings``, by attribute, contribute."""
        weights = self._weights
        return sum(_term(weights[name], rating) for name, rating in ratings.items() if name in weights) / self._total

    def _rate_fragmentation(self, found: Fit, there: NodeFacts, asked: int) -> float:
        """Return the rating, computed once for all nodes with such GPUs and CPU for the same kinds of wishes."""
        cpu = there.allocatable[CPU] - there.used.get(CPU, 0) if CPU in there.allocatable else None
        rest = None if cpu is None else cpu - asked
        key = (found, cpu_level(self._policy, cpu), cpu_level(self._policy, rest))
        known = self._fragmentation.get(key)
        if known is None:
            known = self._fragmentation[key] = _fragmentation_rating(self._policy, found, cpu, rest)
        return known


def _term(weight: float, rating: float) -> float:
    """Return a rating times its weight; a negative weight counts what is missing to 1."""
    return weight * rating if weight > 0 else -weight * (1 - rating)


def _rate_gpus(policy: Policy, shape: Shape, grants: tuple[Grant, ...]) -> dict[str, float]:
    """Rate what depends on the GPUs alone, once ``grants`` are given."""
    gpus = [gpu for gpu in after(shape, grants) if gpu.healthy]
    memory = sum(gpu.memory for gpu in gpus)
    free_memory = sum(gpu.memory * gpu.free for gpu in gpus)
    return {
        "together": _together(shape, grants),
        "preference": _preference(policy, shape, grants),
        "gpu_free": sum(gpu.free for gpu in gpus) / (MILLI_PER_GPU * len(gpus)) if gpus else UNKNOWN,
        "gpu_memory_free": free_memory / (MILLI_PER_GPU * memory) if memory else UNKNOWN,
    }


def _fragmentation_rating(policy: Policy, found: Fit, cpu: int | None, rest: int | None) -> float:
    """Rate how much fragmentation the grants add: 0.5 for none, less the more they add.

    To take what was useless anyway reduces fragmentation, and is rated above 0.5.
    """
    growth = fragmentation(policy, after(found.shape, found.grants), rest) - fragmentation(policy, found.shape, cpu)
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
    """Return the mean preference for the models of the granted GPUs."""
    if not grants:
        return UNKNOWN
    return sum(preferred(policy, shape[index].model) for index, _ in grants) / len(grants)


def _part_left(facts: NodeFacts, name: str, asks: Mapping[str, int]) -> float:
    """Return the part of a resource that is left after the pod has come, 0 to 1."""
    there = facts.allocatable.get(name)
    if not there:
        return UNKNOWN
    return max(0.0, min(1.0, (there - facts.used.get(name, 0) - asks.get(name, 0)) / there))


def _idle(facts: NodeFacts) -> float:
    return UNKNOWN if facts.network is None else max(0.0, min(1.0, 1 - facts.network))
