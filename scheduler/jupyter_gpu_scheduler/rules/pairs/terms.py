"""Pure: the points of a pair of nodes, each side by itself.

The weight of a pair is what its relation gives, and the ratings of the policy (`scoring.policy`), each times its weight
and `POINTS`. What belongs to the GPUs' node does not depend on the pod's node, nor the other way round: so both are
computed once for each node. Ratings of both nodes (CPU for the free GPUs, network, switch) count one half on each side.
Where both nodes are one, the pod takes its CPU there in place of the worker's, and that is rated.

All points are whole billionths, so that a sum is the same in whatever order it was made, and a tie is a tie.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_gpu.model.service import Relation
from jupyter_gpu_scheduler.rules.queue.fit_cache import Fit
from jupyter_gpu_scheduler.rules.scoring.expectation import expectation
from jupyter_gpu_scheduler.rules.scoring.policy import UNKNOWN, Policy
from jupyter_gpu_scheduler.rules.scoring.ratings import (
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
from jupyter_gpu_scheduler.rules.state.shape import shape_of
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, DISK, MEMORY, ClusterSnapshot

from .nearest import Rated
from .relation import Location, Network, location_of

POINTS = 20
"""Points of a rating of 1 with a weight of 1: a relation of 100 points has the weight 5."""
BILLION = 10**9
FULL = 100
"""The highest points of a relation."""
KNOWN = 4096
"""GPUs with grants whose ratings are kept; then all are forgotten."""
_WORKER = {CPU: 250, MEMORY: 512 * 1024**2}
_RESOURCES = (("cpu_free", CPU), ("memory_free", MEMORY), ("disk_free", DISK))


@dataclass(frozen=True, eq=False)
class PairPolicy:
    """All settings by which pairs are rated.

    Compared by identity: make one and keep it, because results computed with it are cached.
    """

    policy: Policy = field(default_factory=Policy)
    network: Network = field(default_factory=Network)
    worker: Mapping[str, int] = field(default_factory=lambda: _WORKER)
    """CPU, memory and disk that a worker pod asks for on the GPUs' node, named as in `NodeFacts`."""


class Terms:
    """The points of nodes for pods that ask for the same CPU, memory and disk; parts that nodes share are cached."""

    def __init__(self, rules: PairPolicy, asks: Mapping[str, int]) -> None:
        self._rules = rules
        self._asks = asks
        self._weights = {name: POINTS * weight for name, weight in rules.policy.weights.items()}
        self._halves = {name: weight / 2 for name, weight in self._weights.items()}
        self.weigh_uplinks = bool(self._weights.get("switch_free"))
        """Whether the use of uplinks counts."""
        self.weigh_network = self.weigh_uplinks or bool(self._weights.get("switch_speed"))
        """Whether it or their speed does."""
        really = counts_use(self._weights)
        self._parts = tuple((name, key, name in really) for name, key in _RESOURCES if name in self._weights)
        self._really_head = "cpu_headroom" in really
        self._growth = Growth(rules.policy)
        self._gpus: dict[Fit, float] = {}
        self._relations: dict[Relation, int] = {}

    def relation(self, relation: Relation) -> int:
        """Return the points of a relation."""
        found = self._relations.get(relation)
        if found is None:
            rating = self._rules.network.points(relation) / FULL
            found = self._relations[relation] = _billionths(weighted(self._weights, {"relation": rating}))
        return found

    def switch(self, use: float | None) -> int:
        """Return the points that a switch gives to each side; ``use``: of its uplinks, 0 to 1; ``None``: not known."""
        if not self.weigh_uplinks:
            return 0
        return _billionths(weighted(self._halves, {"switch_free": UNKNOWN if use is None else 1 - use}))

    def network(self, snapshot: ClusterSnapshot, node: str, use: float | None) -> int:
        """Return what the network gives to a node that has both the GPUs and the pod; ``use``: as in `switch`."""
        network = self._rules.network
        rating = _rate_speed(snapshot.facts(node).speed, location_of(snapshot, node, network), network)
        return 2 * self.switch(use) + _billionths(weighted(self._weights, {"switch_speed": rating}))

    def of_gpus(self, snapshot: ClusterSnapshot, node: str, found: Fit) -> Rated:
        """Rate the node of the GPUs, if the pod is on another; ``found`` are the GPUs that it would give."""
        points, growth = self._rate_gpus(snapshot, node, found, self._rules.worker.get(CPU, 0))
        both = self._both(snapshot, node, self._rules.worker, free_after(found))
        return Rated(-_billionths(points + weighted(self._halves, both)), _billionths(growth), node)

    def of_pod(self, snapshot: ClusterSnapshot, node: str) -> int:
        """Return the points of the pod's node, if the GPUs are on another."""
        both = self._both(snapshot, node, self._asks, free_after(Fit(shape_of(snapshot, node) or ())))
        return _billionths(self._rate_pod(snapshot, node) + weighted(self._halves, both))

    def of_one(self, snapshot: ClusterSnapshot, node: str, found: Fit) -> Rated:
        """Rate a node that has both the GPUs and the pod; without what its relation and its switch give."""
        points, growth = self._rate_gpus(snapshot, node, found, self._asks.get(CPU, 0))
        both = self._both(snapshot, node, self._asks, free_after(found))
        points += self._rate_pod(snapshot, node) + weighted(self._weights, both)
        return Rated(-_billionths(points), _billionths(growth), node)

    def _rate_gpus(self, snapshot: ClusterSnapshot, node: str, found: Fit, cpu: int) -> tuple[float, float]:
        """Return the points of the GPUs alone once ``cpu`` is gone, and the growth of fragmentation."""
        if len(self._gpus) >= KNOWN:
            self._gpus.clear()
            self._growth = Growth(self._rules.policy)
        growth = self._growth.of(found, snapshot.facts(node), cpu)
        known = self._gpus.get(found)
        if known is None:
            known = self._gpus[found] = weighted(self._weights, rate_gpus(self._rules.policy, found))
        others = expectation(snapshot, node, self._rules.policy).of_others(sum(milli for _, milli in found.grants))
        ratings = {"fragmentation": less_fragmentation(growth), "left_for_others": others}
        return known + weighted(self._weights, ratings), growth

    def _rate_pod(self, snapshot: ClusterSnapshot, node: str) -> float:
        facts = snapshot.facts(node)
        ratings = {name: part_left(facts, key, self._asks, really=really) for name, key, really in self._parts}
        return weighted(self._weights, ratings)

    def _both(self, snapshot: ClusterSnapshot, node: str, asks: Mapping[str, int], free: int) -> dict[str, float]:
        """Return the ratings that count on both sides; ``free``: milli of the node's GPUs that are free afterwards."""
        facts, network = snapshot.facts(node), self._rules.network
        left = cpu_left(facts, asks.get(CPU, 0), really=self._really_head)
        found = {
            "cpu_headroom": cpu_headroom(left, free, self._rules.policy.headroom),
            "network_free": idle(facts),
        }
        if "switch_speed" in self._weights:
            found["switch_speed"] = _rate_speed(facts.speed, location_of(snapshot, node, network), network)
        return found


def _rate_speed(reported: int | None, location: Location, network: Network) -> float:
    speed = network.speeds.get(location.switch, reported)
    return UNKNOWN if speed is None else min(1.0, speed / network.full_speed)


def _billionths(number: float) -> int:
    return round(number * BILLION)
