"""Pure: the best nodes by zone, key and switch, so that the best one for a pod's node is found without asking all.

The points of a relation are the same for all nodes on a switch, as seen from a pod's node, and for all other switches
of a zone and key. So of each switch the best node is kept, and of each zone and key the best switch. The use of a
switch counts for all its nodes: it is added to the switch, and changes no node.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator
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


_Switch = tuple[str, ...]
"""The key and the name of a switch, which may have nodes in several zones."""


class Nearest:
    """Nodes by location; adding, changing and removing one costs about the same whatever the number of nodes.

    ``points``: those of a relation, in billionths.
    """

    def __init__(self, points: Callable[[Relation], int]) -> None:
        self._points = points
        self._near_points = points(Relation.SWITCH)
        self._known: dict[str, tuple[Location, Rated]] = {}
        self._on: dict[Location, list[Rated]] = {}  # the nodes of each switch, best first
        self._best: dict[tuple[str, str], list[tuple[Rated, Location]]] = {}  # the best of each switch, likewise
        self._same: dict[_Switch, dict[Location, Rated]] = {}  # those again, by switch: in each of its zones
        self._near: dict[_Switch, Rated] = {}  # the best of each switch, as seen from there
        self._far: dict[tuple[str, str], list[tuple[Rated, _Switch]]] = {}  # as seen from a zone and key that was asked
        self._added: dict[_Switch, int] = {}  # to all nodes of a switch

    def put(self, location: Location, rated: Rated) -> None:
        """Add a node, or replace what is known of it."""
        there, before = self._known.get(rated.node, (None, None))
        if there != location:
            self.remove(rated.node)
            before = None
        if rated != before:
            self._known[rated.node] = (location, rated)
            self._change(location, before, rated)

    def remove(self, node: str) -> None:
        """Remove a node; an unknown one is no error."""
        if node in self._known:
            self._change(*self._known.pop(node), None)

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
        self._see_again(switch)

    def best(self, location: Location, without: Collection[str] = ()) -> Rated | None:
        """Return the best node for a pod at ``location``, but for those ``without``; ``None``: there is none.

        The cost includes the points of the relation, and what the switch adds.
        """
        left_out = [node for node in without if node in self._known]
        if location.key and not left_out:
            return next((found for _, found in self.best_of_each((location,))), None)
        found = (
            rated._replace(cost=rated.cost - self._points(relate(location, there)))
            for there, rated in self._candidates(location, left_out)
        )
        return min(found, default=None)

    def second(self, location: Location, first: str) -> Rated | None:
        """Return the best node but ``first``, a node at ``location``, for a pod there; ``None``: there is none."""
        if not location.key:
            return self.best(location, (first,))
        switch, best = location[1:], None
        for there in self._same[switch]:
            nodes = self._on[there]
            one = nodes[0] if nodes[0].node != first else nodes[1] if len(nodes) > 1 else None
            if one and (best is None or one < best):
                best = one
        if best:
            best = self._with_added(location, best)
            best = best._replace(cost=best.cost - self._near_points)
        for rated, other in self._far_from(location):
            if other != switch:
                return rated if best is None or rated < best else best
        return best

    def best_of_each(self, locations: Iterable[Location]) -> Iterator[tuple[Location, Rated]]:
        """Yield each of the locations, which may be hundreds of switches, with its best node, if there is any."""
        for location in locations:
            if not location.key:
                best = self.best(location)
            else:
                switch = location[1:]
                best = self._near.get(switch)
                for rated, there in self._far_from(location):
                    if there != switch:
                        best = rated if best is None or rated < best else best
                        break
            if best:
                yield location, best

    def _far_from(self, location: Location) -> list[tuple[Rated, _Switch]]:
        zone_and_key = location[:2]
        if zone_and_key not in self._far:
            self._far[zone_and_key] = self._best_on_others(location)
        return self._far[zone_and_key]

    def _best_on_others(self, location: Location) -> list[tuple[Rated, _Switch]]:
        """Return the nodes of which one is the best on another switch, best first, with the switches.

        They are the same for all locations of one zone and key.
        """
        found = [
            (rated._replace(cost=rated.cost - self._points(_apart(location, there))), there[1:])
            for bests in self._best.values()
            for rated, there in bests[:2]  # of each zone and key one switch at most is the pod node's own
        ]
        return sorted(found)

    def _candidates(self, location: Location, without: Collection[str]) -> Iterator[tuple[Location, Rated]]:
        """Yield the best of each class of nodes that the same points are given, as seen from a location.

        ``without``: known nodes that are left out.
        """
        left_out = {self._known[node][0] for node in without}
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

    def _change(self, location: Location, before: Rated | None, after: Rated | None) -> None:
        """Replace a node of a location; most are not its best one, and then nothing else follows."""
        nodes = self._on.setdefault(location, [])
        best = nodes[0] if nodes else None
        if before:
            del nodes[bisect_left(nodes, before)]
        if after:
            insort(nodes, after)
        if nodes and nodes[0] is best:
            return
        if best:
            self._leave(location)
        if nodes:
            self._enter(location)
        else:
            del self._on[location]
        self._see_again(location[1:])

    def _leave(self, location: Location) -> None:
        """Take the best node of a location out of the order of switches."""
        rated = self._same[location[1:]].pop(location)
        bests = self._best[location[:2]]
        del bests[bisect_left(bests, (rated, location))]
        if not bests:
            del self._best[location[:2]]

    def _enter(self, location: Location) -> None:
        rated = self._with_added(location, self._on[location][0])
        self._same.setdefault(location[1:], {})[location] = rated
        insort(self._best.setdefault(location[:2], []), (rated, location))

    def _see_again(self, switch: _Switch) -> None:
        """Find the best node of a switch, and forget what is kept of all switches."""
        self._far.clear()
        same = self._same.get(switch)
        if same:
            near = min(same.values())
            self._near[switch] = near._replace(cost=near.cost - self._near_points)
        else:
            self._near.pop(switch, None)
            self._same.pop(switch, None)

    def _with_added(self, location: Location, rated: Rated) -> Rated:
        return rated._replace(cost=rated.cost - self._added.get(location[1:], 0))


def _apart(one: Location, other: Location) -> Relation:
    """Return how near two nodes are that are not on one switch."""
    if one.key and one.key == other.key:
        return Relation.OTHER
    return relate(one, other)
