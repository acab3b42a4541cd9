"""The best node but for some that are no answer: always that of a look at all."""

from __future__ import annotations

from collections.abc import Mapping

from hypothesis import given
from hypothesis import strategies as some

from jupyter_gpu.model.service import Relation
from jupyter_gpu_scheduler.rules.pairs.nearest import Nearest, Rated
from jupyter_gpu_scheduler.rules.pairs.relation import Location, relate

POINTS = {Relation.SWITCH: 30, Relation.OTHER: 10, Relation.UNKNOWN: 20}
KEYS, SWITCHES = some.sampled_from(["", "k"]), some.sampled_from(["s", "t"])
PLACES = some.builds(Location, some.sampled_from(["", "z"]), KEYS, SWITCHES)


@given(some.dictionaries(some.sampled_from("abcdef"), some.tuples(PLACES, some.integers(-9, 9))), PLACES, some.data())
def test_best_of_the_others(nodes: Mapping[str, tuple[Location, int]], here: Location, data: some.DataObject) -> None:
    """Whichever nodes are left out, wherever they are."""
    without = data.draw(some.sets(some.sampled_from("abcdefx")))
    nearest = Nearest()
    for name, (place, cost) in nodes.items():
        nearest.put(place, Rated(cost, 0, name))
    others = [
        Rated(cost - POINTS[relate(here, place)], 0, name)
        for name, (place, cost) in nodes.items()
        if name not in without
    ]
    assert nearest.best(here, without, POINTS.__getitem__) == min(others, default=None)
    all_others = nearest.others(here, POINTS.__getitem__)
    assert nearest.best_beside(here, all_others, POINTS.__getitem__) == nearest.best(here, (), POINTS.__getitem__)


def test_best_of_all_is_found_by_what_nodes_of_one_zone_and_key_share() -> None:
    """The own switch counts by its relation and by what is added to it; without it, the best of the others is left."""
    nearest, points = Nearest(), POINTS.__getitem__
    here, there = Location("z", "k", "s"), Location("z", "k", "t")
    assert nearest.best_beside(here, nearest.others(here, points), points) is None
    nearest.put(there, Rated(0, 0, "a"))
    nearest.put(here, Rated(15, 0, "b"))
    others = nearest.others(here, points)
    assert nearest.best_beside(here, others, points) == Rated(-15, 0, "b")
    assert nearest.best_beside(there, others, points) == Rated(-30, 0, "a")
    assert nearest.best_beside(Location("z", "k", "u"), others, points) == Rated(-10, 0, "a")
    nearest.put(here, Rated(25, 0, "b"))
    assert nearest.best_beside(here, others, points) == Rated(-10, 0, "a")
    nearest.add(here, 9)
    assert nearest.best_beside(here, nearest.others(here, points), points) == Rated(-14, 0, "b")


def test_switch_of_two_zones_is_one_switch() -> None:
    """Its best node is found in either zone, also once the other one has no node there any more."""
    nearest, points = Nearest(), POINTS.__getitem__
    east, west = Location("z", "k", "s"), Location("y", "k", "s")
    nearest.put(east, Rated(0, 0, "a"))
    nearest.put(west, Rated(-1, 0, "b"))
    for gone, cost, left in (("b", -30, "a"), ("a", -31, "b")):
        nearest.put(east, Rated(0, 0, "a"))
        nearest.put(west, Rated(-1, 0, "b"))
        assert nearest.best_beside(east, nearest.others(east, points), points) == Rated(-31, 0, "b")
        nearest.remove(gone)
        assert nearest.best_beside(east, nearest.others(east, points), points) == Rated(cost, 0, left)
