"""Pure: the GPUs of other nodes that a pod which wants none yet can expect later.

Its own node's count wholly. What these leave to expect is rated by the best other node: by what a pod can expect there
(`scoring.expectation`), times the part of 100 points that their relation gives. Such a node takes a worker now.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Set
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.service import Relation
from jupyter_gpu_scheduler.rules.scoring.expectation import expectation
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .nearest import Nearest, Rated
from .pod_nodes import takes_worker
from .relation import Location, location_of, relate
from .terms import BILLION, FULL, PairPolicy

FEW = 16
"""Nodes that change at once, of which it is asked which answers they change."""
_NOTHING = -(10**6) * BILLION
"""The logarithm that stands for 0."""


class _Best(NamedTuple):
    """The best node for pods at one location, and for those on that node another one; an empty name: there is none."""

    first: str
    rating: float
    second: str
    second_rating: float


class ExpectedElsewhere:
    """Expectations of other nodes, of pods that seek GPUs of one kind and tolerate the same taints."""

    def __init__(self, snapshot: ClusterSnapshot, rules: PairPolicy, sought: Wish | None) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._sought = sought
        self._read: int | None = None
        self._locations: dict[Location, Location] = {}  # one object for each, as that is compared faster
        self._own: dict[str, tuple[Location, float]] = {}  # location of each node, and what its own GPUs leave of 1
        self._givers: dict[str, float] = {}  # what can be expected of each node that takes a worker
        self._parts = {relation: rules.network.points(relation) / FULL for relation in Relation}
        self._nearest = Nearest(lambda relation: _logarithm(self._parts[relation]))  # sums of these are products
        self._best: dict[Location, _Best] = {}
        self._at: dict[Location, set[str]] = {}  # the nodes at each location
        self._gains: dict[str, float] = {}  # by how much other nodes raise what can be expected on each node, 0 to 1

    def update(self, pod: PodState) -> None:
        """Rate all nodes at first, and then those that changed; ``pod``: any that is meant."""
        changes = self._snapshot.changes
        changed = None if self._read is None else changes.since(self._read)
        if changed is None:
            changed = {*self._own, *self._snapshot.nodes()}
        self._read = changes.last
        worker = PodState("", asks=self._rules.worker, tolerations=pod.tolerations)
        for name in changed:
            self._rate(name, worker)
        before = dict(self._best)
        if len(changed) > FEW:
            self._best.clear()
        elif changed:
            self._forget(changed)
        if changed:
            self._gain(changed, before)

    def _rate(self, name: str, worker: PodState) -> None:
        if before := self._own.pop(name, None):
            self._at[before[0]].remove(name)
            del self._gains[name]
        self._givers.pop(name, None)
        if self._snapshot.gpus(name) is None:
            self._nearest.remove(name)
            return
        found = location_of(self._snapshot, name, self._rules.network)
        location = self._locations.setdefault(found, found)
        rating = expectation(self._snapshot, name, self._rules.policy, self._sought).of_one_more
        self._own[name] = location, 1 - rating
        self._at.setdefault(location, set()).add(name)
        if rating and self._snapshot.facts(name).schedulable and takes_worker(self._snapshot, worker, name):
            self._givers[name] = rating
            self._nearest.put(location, Rated(-_logarithm(rating), 0, name))
        else:
            self._nearest.remove(name)

    def _forget(self, changed: Set[str]) -> None:
        """Forget the best nodes for those locations where one that changed was among them, or is now."""
        for location, best in tuple(self._best.items()):
            for name in changed:
                rating = self._rating(location, name)
                if name in (best.first, best.second) or (rating and rating >= best.second_rating):
                    del self._best[location]
                    break

    def _gain(self, changed: Set[str], before: Mapping[Location, _Best]) -> None:
        """Compute the gains of nodes that changed, and of those for which the best node is not that of ``before``."""
        for location, names in self._at.items():
            best, old = self._best_for(location), before.get(location)
            if best is old:
                affected = names & changed
            elif old and old.rating == best.rating:
                affected = names & {*changed, old.first, best.first}
            else:
                affected = names
            for name in affected:
                self._gains[name] = self._more(name, 0.0)

    def raise_scores(self, scores: Mapping[str, float], coming: Mapping[str, float], part: float) -> dict[str, float]:
        """Return the scores of places once other nodes count; ``part``: of a score, what can be expected is so much.

        ``coming``: how many pods without GPUs are on their way to a node, by its name.
        """
        gains = self._gains
        found = {name: score + part * gains[name] for name, score in scores.items()}
        for name, pods in coming.items():
            if name in scores:
                found[name] = scores[name] + part * self._more(name, pods)
        return found

    def _more(self, name: str, coming: float) -> float:
        """Return by how much other nodes raise what can be expected on one, 0 to 1."""
        location, missing = self._own[name]
        best = self._best_for(location)
        if coming:
            expected = expectation(self._snapshot, name, self._rules.policy, self._sought)
            missing = 1 - expected.with_more(coming).of_one_more
        return missing * (best.second_rating if best.first == name else best.rating)

    def _best_for(self, location: Location) -> _Best:
        found = self._best.get(location)
        if found is None:
            found = self._best[location] = self._find_best(location)
        return found

    def _find_best(self, location: Location) -> _Best:
        best = self._nearest.best(location)
        if best is None:
            return _Best("", 0.0, "", 0.0)
        first = second = best.node
        if self._own[first][0] is location:
            other = self._nearest.second(location, first)
            second = other.node if other else ""
        return _Best(first, self._rating(location, first), second, self._rating(location, second))

    def _rating(self, location: Location, name: str) -> float:
        """Return what a pod at a location can expect of another node, 0 to 1."""
        rating = self._givers.get(name)
        return rating * self._parts[relate(location, self._own[name][0])] if rating else 0.0


def _logarithm(number: float) -> int:
    """Return a logarithm in billionths, so that sums are exact."""
    return round(math.log(number) * BILLION) if number else _NOTHING
