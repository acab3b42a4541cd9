"""Pure: scores of nodes for a pod, with the GPUs of that node.

A pod that wants no GPU yet is rated by what it can expect there later.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.queue.fit_cache import Fit, fits_on, wanted
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, DISK, MEMORY, ClusterSnapshot, NodeFacts

from .expectation import Expectation, expectation
from .policy import UNKNOWN, WITH_WISH, WITHOUT_SLOT, WITHOUT_WISH, Policy
from .ratings import (
    Growth,
    counts_use,
    cpu_headroom,
    cpu_left,
    free_after,
    idle,
    less_fragmentation,
    part_left,
    rate_gpus,
    weighted,
)

BEST = 10
"""The highest score that kube-scheduler takes from an extender."""
NEAR = 0.0025
"""Scores that differ by less from the best are equal to kube-scheduler, so that its own plugins decide between them."""
_ROUNDING = 1e-12
NONE_COMING: Mapping[str, float] = MappingProxyType({})
_RESOURCES = (("cpu_free", CPU), ("memory_free", MEMORY), ("disk_free", DISK))


def prioritize(
    snapshot: ClusterSnapshot,
    pod: PodState,
    names: Sequence[str],
    policy: Policy,
    coming: Mapping[str, float] = NONE_COMING,
    apart: Callable[[Mapping[str, float]], Mapping[str, float]] = lambda _: NONE_COMING,
) -> dict[str, int]:
    """Return 0 to 10 for each of ``names``, with GPUs of the same node: 10 for the best and for all `NEAR` to it.

    The others are distinguished as far as they differ: a step is a tenth of what is between the best and the worst, and
    never less than `NEAR`. A node where the wish can't be had now gets 0. ``coming``: how many pods without GPUs are on
    their way to a node, by its name; ``apart``: is given these scores, and returns those that GPUs of other nodes
    change or add (`scores_of`, `part_expected`).
    """
    scores = dict(_scores(snapshot, pod, names, policy, coming, fitting=True))
    scores |= apart(scores)
    if not scores:
        return dict.fromkeys(names, 0)
    high = max(scores.values())
    step = max((high - min(scores.values())) / BEST, NEAR)
    most = [*(high - behind * step + _ROUNDING for behind in range(BEST, 1, -1)), high - NEAR]  # of each of 0 to 9
    priorities = dict.fromkeys(names, 0) if len(scores) < len(names) else {}
    return priorities | {name: bisect_left(most, score) for name, score in scores.items()}


def scores_of(policy: Policy, ratings: Mapping[str, float]) -> dict[str, float]:
    """Return the scores, 0 to 1, of places for a pod that wants GPUs; ``ratings``: the sum of each one's, by weight."""
    most = sum(abs(weight) for name, weight in policy.weights.items() if name in WITH_WISH)
    return {name: rating / most if most else UNKNOWN for name, rating in ratings.items()}


def part_expected(policy: Policy) -> float:
    """Return which part of the score of a place, for a pod that wants no GPU yet, ``expected`` is."""
    weight = policy.weights.get("expected", 0.0)
    return weight / sum(abs(each) for name, each in policy.weights.items() if name in WITHOUT_WISH) if weight else 0.0


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
    wants, sought = wanted(pod), _sought(pod)
    asks = (pod.asks.get(name, 0) for name in (CPU, MEMORY, DISK))
    question = (pod.wish, pod.slots, wants is None and pod.anywhere, *asks)
    answers: dict[str, tuple[Fit, float]] = snapshot.memo(("score", policy, question))
    scorer = _Scorer(policy, pod)
    for name, found, _ in fits_on(snapshot, pod, names):
        if name in coming and found.fits:
            facts, expected = snapshot.facts(name), expectation(snapshot, name, policy, sought)
            yield name, scorer.score(found, expected.with_more(coming[name]), facts)
        elif found.fits or not fitting:
            known = answers.get(name)
            if known is None or known[0] is not found:  # another fit where other pods are ahead
                facts, expected = snapshot.facts(name), expectation(snapshot, name, policy, sought)
                known = answers[name] = (found, scorer.score(found, expected, facts))
            yield name, known[1]


def _sought(pod: PodState) -> Wish | None:
    """Return which GPUs a pod that wants none yet may want, as a wish; ``None``: unknown, or chosen already."""
    return pod.wish if wanted(pod) is None else None


class _Scorer:
    """Scores of nodes for one pod; parts that nodes share are computed once."""

    def __init__(self, policy: Policy, pod: PodState) -> None:
        self._policy = policy
        self._asks = pod.asks
        self._wants = wanted(pod) is not None
        meant = WITH_WISH if self._wants else WITHOUT_WISH if pod.slots else WITHOUT_SLOT
        self._weights = {name: weight for name, weight in policy.weights.items() if name in meant}
        self._total = sum(map(abs, self._weights.values()))
        self._really = counts_use(self._weights)
        self._gpu_scores: dict[Fit, float] = {}
        self._free: dict[Fit, int] = {}
        self._growth = Growth(policy)

    def score(self, found: Fit, expected: Expectation, facts: NodeFacts) -> float:
        """Score a node with these facts: the pod is there, and its GPUs."""
        if not self._total:
            return UNKNOWN
        weights, really, asks = self._weights, self._really, self._asks
        ratings = {
            name: part_left(facts, key, asks, really=name in really) for name, key in _RESOURCES if name in weights
        }
        if "fragmentation" in weights:
            ratings["fragmentation"] = less_fragmentation(self._growth.of(found, facts, self._asks.get(CPU, 0)))
        if "cpu_headroom" in weights:
            ratings["cpu_headroom"] = self._headroom(found, facts)
        if "network_free" in weights:
            ratings["network_free"] = idle(facts)
        if not self._wants:
            return self._weighted({**ratings, "expected": expected.of_one_more, "preference": expected.preferred})
        gpus = self._gpu_scores.get(found)
        if gpus is None:
            gpus = self._gpu_scores[found] = self._weighted(rate_gpus(self._policy, found))
        ratings["relation"] = 1.0
        ratings["left_for_others"] = expected.of_others(sum(milli for _, milli in found.grants))
        return gpus + self._weighted(ratings)

    def _headroom(self, found: Fit, facts: NodeFacts) -> float:
        """Rate the CPU that is left for the GPUs that stay free."""
        free = self._free.get(found)
        if free is None:
            free = self._free[found] = free_after(found)
        left = cpu_left(facts, self._asks.get(CPU, 0), really="cpu_headroom" in self._really)
        return cpu_headroom(left, free, self._policy.headroom)

    def _weighted(self, ratings: Mapping[str, float]) -> float:
        """Return the part of the score that ratings, by attribute, contribute."""
        return weighted(self._weights, ratings) / self._total
