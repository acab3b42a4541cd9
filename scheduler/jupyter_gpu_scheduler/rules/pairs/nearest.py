"""Pure: the best nodes by zone, key and switch, so that the best one for a pod's node is found without asking all.

The points of a relation are the same for all nodes on a switch, as seen from a pod's node, and for all other switches
of a zone and key. So of each switch the best node is kept, and of each zone and key the best switch. The use of a
switch counts for all its nodes: it is added to the switch, and changes no node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from jupyter_gpu.model.service import Relation

from .relation import Location, relate


class Rated(NamedTuple):
    """A node and what it costs; the least is the best."""

    cost: int
    """Its points in billionths, negated."""
    growth: int
    """Growth of fragmentation in billionths of a milli; of equals the least is the best."""
    node: str


_NO_NODES: Mapping[Location, Rated] = MappingProxyType({})


class Nearest:
    """Nodes by location; adding, changing and removing one costs about the same whatever the number of nodes."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[Location, Rated]] = {}
        self._on: dict[Location, list[Rated]] = {}  # the nodes of each switch, best first
        self._best: dict[tuple[str, str], list[tuple[Rated, Location]]] = {}  # the best of each switch, likewise
        self._same: dict[tuple[str, ...], dict[Location, Rated]] = {}  # those again, by key and switch, in all zones
        self._added: dict[tuple[str, ...], int] = {}  # to all nodes of a switch

    def put(self, location: Location, rated: Rated) -> None:
        """Add a node, or replace what is known of it."""
        if self._known.get(rated.node) == (location, rated):
            return
        self.remove(rated.node)
        self._known[rated.node] = (location, rated)
        self._change(location, lambda nodes: insort(nodes, rated))

    def remove(self, node: str) -> None:
        """Remove a node; an unknown one is no error."""
        if node in self._known:
            location, rated = self._known.pop(node)
            self._change(location, lambda nodes: nodes.pop(bisect_left(nodes, rated)))

    def __len__(self) -> int:
        """Return the number of nodes."""
        return len(self._known)

    def has_other(self, node: str) -> bool:
        """Tell whether there is a node beside ``node``, which may be unknown."""
        return len(self._known) > (node in self._known)

    def add(self, location: Location, points: int) -> None:
        """Set the points, in billionths, that all nodes of a switch have beside their own, in whatever zone."""
        switch = location[1:]
        if self._added.get(switch, 0) == points:
            return
        same = tuple(self._same.get(switch, ()))
        for other in same:
            self._leave(other)
        self._added[switch] = points
        for other in same:
            self._enter(other)

    def best(self, location: Location, without: Collection[str], points: Callable[[Relation], int]) -> Rated | None:
        """Return the best node for a pod at ``location``, but for those ``without``; ``None``: there is none.

        ``points``: those of a relation, in billionths. The cost includes them, and what the switch adds.
        """
        found = None
        for there, rated in self._candidates(location, without):
            total = rated._replace(cost=rated.cost - points(relate(location, there)))
            if found is None or total < found:
                found = total
        return found

    def others(self, location: Location, points: Callable[[Relation], int]) -> list[tuple[Rated, Location]]:
        """Return the nodes of which the best on another switch is one, best first, with their locations.

        They are the same for all locations of one zone and key, so they are asked for once for many (`best_beside`).
        """
        found = [
            (rated._replace(cost=rated.cost - points(_apart(location, there))), there)
            for bests in self._best.values()
            for rated, there in bests[:2]  # of each zone and key one switch at most is the pod node's own
        ]
        return sorted(found)

    def best_beside(
        self, location: Location, others: Iterable[tuple[Rated, Location]], points: Callable[[Relation], int]
    ) -> Rated | None:
        """Return what `best` does if no node is left out; ``others``: those of the location's zone and key."""
        switch = location[1:]
        best: Rated | None = None
        for rated, there in others:  # faster than `next`, and there are many switches
            if there[1:] != switch:
                best = rated
                break
        for there, rated in self._same.get(switch, _NO_NODES).items():
            cost = rated.cost - points(relate(location, there))
            if best is None or (cost, *rated[1:]) < best:
                best = Rated(cost, rated.growth, rated.node)
        return best

    def _candidates(self, location: Location, without: Collection[str]) -> Iterator[tuple[Location, Rated]]:
        """Yield the best of each class of nodes that the same points are given, as seen from a location."""
        left_out = {self._known[node][0] for node in without if node in self._known}
        for (zone, key), bests in self._best.items():
            near = {Location(zone, *location[1:])} if key == location.key else set()
            alone = near | {there for there in left_out if there[:2] == (zone, key)}
            for there in sorted(alone):
                first = next((one for one in self._on.get(there, ()) if one.node not in without), None)
                if first:
                    yield there, self._with_added(there, first)
            other = next(((there, rated) for rated, there in bests if there not in alone), None)
            if other:
                yield other

    def _change(self, location: Location, change: Callable[[list[Rated]], object]) -> None:
        self._leave(location)
        nodes = self._on.setdefault(location, [])
        change(nodes)
        if not nodes:
            del self._on[location]
        self._enter(location)

    def _leave(self, location: Location) -> None:
        """Take the best node of a switch out of the order of switches."""
        nodes = self._on.get(location)
        if nodes:
            bests = self._best[location[:2]]
            del bests[bisect_left(bests, (self._with_added(location, nodes[0]), location))]
            if not bests:
                del self._best[location[:2]]
            same = self._same[location[1:]]
            del same[location]
            if not same:
                del self._same[location[1:]]

    def _enter(self, location: Location) -> None:
        nodes = self._on.get(location)
        if nodes:
            rated = self._with_added(location, nodes[0])
            insort(self._best.setdefault(location[:2], []), (rated, location))
            self._same.setdefault(location[1:], {})[location] = rated

    def _with_added(self, location: Location, rated: Rated) -> Rated:
        return rated._replace(cost=rated.cost - self._added.get(location[1:], 0))


def _apart(one: Location, other: Location) -> Relation:
    """Return how near two nodes are that are not on one switch."""
    if one.key and one.key == other.key:
        return Relation.OTHER
    return relate(one, other)
