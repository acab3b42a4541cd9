"""How good each place is for a pod. A place is a pair: the pod's node and the node of its GPUs."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .fragmentation import fragmentation
from .placement import named
from .policy import Policy
from .shape import Grant, Shape, after, shape_of
from .snapshot import CPU, DISK, MEMORY, ClusterSnapshot, NodeFacts, PodState
from .verdict import Verdict, standings, verdict

BEST = 10
"""The highest score that kube-scheduler takes from an extender."""
_UNKNOWN = 0.5


@dataclass(frozen=True, slots=True)
class Pair:
    """A place for a pod."""

    pod_node: str
    gpu_node: str


def score(snapshot: ClusterSnapshot, pod: PodState, pair: Pair, policy: Policy) -> float:
    """How good ``pair`` is, 0 to 1, whatever is free there now."""
    found, _ = verdict(snapshot, pod, pair.gpu_node, standings(snapshot, pod))
    return _rate(snapshot, pod, pair, policy, found.grants)


def prioritize(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy) -> dict[str, int]:
    """0 to 10 for each of ``names``, GPUs on the pod's own node: 10 for the best alone, 0 for the worst.

    A node where the wish can't be had now gets 0.
    """
    rates = _rates(snapshot, pod, names, policy)
    if not rates:
        return dict.fromkeys(names, 0)
    high, low = max(rates.values()), min(rates.values())
    scale = BEST / (high - low) if high > low else 0.0
    scores = dict.fromkeys(names, 0)
    for name, found in rates.items():
        scores[name] = BEST if found == high else min(BEST - 1, int((found - low) * scale))
    return scores


def best(snapshot: ClusterSnapshot, pod: PodState, names: Sequence[str], policy: Policy) -> str | None:
    """Where ``pod`` is placed best of ``names``, the first by name of equals; ``None`` where it fits nowhere."""
    rates = _rates(snapshot, pod, names, policy)
    return min(rates, key=lambda name: (-rates[name], name)) if rates else None


def rate(snapshot: ClusterSnapshot, pod: PodState, name: str, policy: Policy) -> float:
    """The score of a node with its own GPUs, 0 to 1, from what was computed before where it still holds."""
    found, place = verdict(snapshot, pod, name, standings(snapshot, pod))
    return _rate_once(snapshot, pod, name, policy, found, place, _answers(snapshot, pod, policy))


def _rates(snapshot: ClusterSnapshot, pod: PodState, names: Iterable[str], policy: Policy) -> dict[str, float]:
    """The scores of those nodes where the pod fits now."""
    known = standings(snapshot, pod)
    answers = _answers(snapshot, pod, policy)
    rates = {}
    for name in names:
        found, place = verdict(snapshot, pod, name, known)
        if found.fits:
            rates[name] = _rate_once(snapshot, pod, name, policy, found, place, answers)
    return rates


def _answers(snapshot: ClusterSnapshot, pod: PodState, policy: Policy) -> dict[str, dict[int, float]]:
    """What was computed before: by node, then by place in line."""
    wish = pod.requested.wish if pod.requested else None
    question = (wish, pod.slots, *(pod.asks.get(name, 0) for name in (CPU, MEMORY, DISK)))
    found: dict[str, dict[int, float]] = snapshot.memo(("score", policy, question))
    return found


def _rate_once(
    snapshot: ClusterSnapshot,
    pod: PodState,
    name: str,
    policy: Policy,
    found: Verdict,
    place: int,
    answers: dict[str, dict[int, float]],
) -> float:
    by_place = answers.get(name)
    if by_place is None:
        by_place = answers[name] = {}
    if place not in by_place:
        by_place[place] = _rate(snapshot, pod, Pair(name, name), policy, found.grants)
    return by_place[place]


def _rate(snapshot: ClusterSnapshot, pod: PodState, pair: Pair, policy: Policy, grants: tuple[Grant, ...]) -> float:
    """The weighted mean of all that is good about a place."""
    facts = snapshot.facts(pair.pod_node)
    shape = shape_of(snapshot, pair.gpu_node) or ()
    left = {name: _left(facts, name, pod.asks) for name in (CPU, MEMORY, DISK)}
    there = snapshot.facts(pair.gpu_node)
    rates: dict[str, float] = {
        **_of_gpus(policy, shape, grants),
        "fragmentation": _undamaged(policy, shape, grants, there, pod.asks if pair.pod_node == pair.gpu_node else {}),
        "cpu_free": left[CPU],
        "memory_free": left[MEMORY],
        "disk_free": left[DISK],
        "network_free": min(_idle(facts), _idle(there)),
        "local": float(pair.pod_node == pair.gpu_node),
    }
    return weighted(policy.weights, rates)


def weighted(weights: Mapping[str, float], rates: Mapping[str, float]) -> float:
    """The mean of ``rates`` by ``weights``; a negative weight counts what is missing to 1."""
    total = sum(abs(weight) for weight in weights.values())
    if not total:
        return _UNKNOWN
    parts = (abs(weight) * (rates[name] if weight > 0 else 1 - rates[name]) for name, weight in weights.items())
    return sum(parts) / total


@lru_cache(maxsize=32768)
def _of_gpus(policy: Policy, shape: Shape, grants: tuple[Grant, ...]) -> dict[str, float]:
    """What depends on the GPUs alone, once ``grants`` are given."""
    cells = [cell for cell in after(shape, grants) if cell.healthy]
    memory = sum(cell.memory for cell in cells)
    return {
        "together": _together(shape, grants),
        "preference": _preference(policy, shape, grants),
        "gpu_free": sum(cell.free for cell in cells) / (MILLI_PER_GPU * len(cells)) if cells else _UNKNOWN,
        "gpu_memory_free": sum(cell.memory * cell.free for cell in cells) / (MILLI_PER_GPU * memory)
        if memory
        else _UNKNOWN,
    }


def _undamaged(
    policy: Policy, shape: Shape, grants: tuple[Grant, ...], facts: NodeFacts, asks: Mapping[str, int]
) -> float:
    """1 where nothing becomes useless by ``grants``, falling towards 0 by what does; 0.5 where nothing changes.

    What was useless anyway and is taken now makes it more than one half.
    """
    cpu = facts.allocatable[CPU] - facts.used.get(CPU, 0) if CPU in facts.allocatable else None
    rest = None if cpu is None else cpu - asks.get(CPU, 0)
    before = fragmentation(policy, shape, cpu)
    growth = fragmentation(policy, after(shape, grants), rest) - before
    return 1 / (1 + math.exp(max(-50.0, min(50.0, growth / MILLI_PER_GPU))))


def _together(shape: Shape, grants: tuple[Grant, ...]) -> float:
    """How near the granted GPUs are to each other."""
    if len(grants) < 2:
        return 1.0
    switches = {(shape[index].switch, index if shape[index].switch is None else -1) for index, _ in grants}
    groups = {(shape[index].island, index if shape[index].island is None else -1) for index, _ in grants}
    if len(groups) > 1:
        return 0.5 / len(groups)
    return 1.0 if len(switches) == 1 else 0.75


def _preference(policy: Policy, shape: Shape, grants: tuple[Grant, ...]) -> float:
    """How much the models of the granted GPUs are preferred, on average."""
    if not grants:
        return _UNKNOWN
    return sum(preferred(policy, shape[index].model) for index, _ in grants) / len(grants)


def preferred(policy: Policy, model: str) -> float:
    """How much GPUs of ``model`` are preferred, 0 to 1; the highest of the words that match counts."""
    found = [value for words, value in policy.models.items() if named(model, words)]
    return max(found) / 10 if found else _UNKNOWN


def _left(facts: NodeFacts, name: str, asks: Mapping[str, int]) -> float:
    """What is left of a resource after the pod has come, 0 to 1."""
    there = facts.allocatable.get(name)
    if not there:
        return _UNKNOWN
    return max(0.0, min(1.0, (there - facts.used.get(name, 0) - asks.get(name, 0)) / there))


def _idle(facts: NodeFacts) -> float:
    return _UNKNOWN if facts.network is None else max(0.0, min(1.0, 1 - facts.network))
