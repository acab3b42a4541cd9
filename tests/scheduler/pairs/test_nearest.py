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
    nearest = Nearest(POINTS.__getitem__)
    for name, (place, cost) in nodes.items():
        nearest.put(place, Rated(cost, 0, name))
    seen = [Rated(cost - POINTS[relate(here, place)], 0, name) for name, (place, cost) in nodes.items()]
    assert nearest.best(here, without) == min((one for one in seen if one.node not in without), default=None)
    assert nearest.best(here) == min(seen, default=None)
    for first in (name for name, (place, _) in nodes.items() if place == here):
        assert nearest.second(here, first) == nearest.best(here, (first,))


def test_own_switch_counts_by_its_relation() -> None:
    """And by what is added to it; without it, the best of the others is left."""
    nearest = Nearest(POINTS.__getitem__)
    here, there = Location("z", "k", "s"), Location("z", "k", "t")
    assert nearest.best(here) is None
    nearest.put(there, Rated(0, 0, "a"))
    nearest.put(here, Rated(15, 0, "b"))
    assert nearest.best(here) == Rated(-15, 0, "b")
    assert nearest.best(there) == Rated(-30, 0, "a")
    assert nearest.best(Location("z", "k", "u")) == Rated(-10, 0, "a")
    nearest.put(here, Rated(25, 0, "b"))
    assert nearest.best(here) == Rated(-10, 0, "a")
    nearest.add(here, 9)
    assert nearest.best(here) == Rated(-14, 0, "b")


def test_switch_of_two_zones_is_one_switch() -> None:
    """Its best node is found in either zone, also once the other one has no node there any more."""
    nearest = Nearest(POINTS.__getitem__)
    east, west = Location("z", "k", "s"), Location("y", "k", "s")
    for gone, cost, left in (("b", -30, "a"), ("a", -31, "b")):
        nearest.put(east, Rated(0, 0, "a"))
        nearest.put(west, Rated(-1, 0, "b"))
        assert nearest.best(east) == Rated(-31, 0, "b")
        nearest.remove(gone)
        assert nearest.best(east) == Rated(cost, 0, left)


def test_answers_follow_changes_on_other_switches() -> None:
    """An answer that is kept for all locations of a zone and key does not outlive a change of any node."""
    nearest = Nearest(POINTS.__getitem__)
    here = Location("z", "k", "s")
    nearest.put(Location("z", "k", "t"), Rated(0, 0, "a"))
    assert nearest.best(here) == Rated(-10, 0, "a")
    nearest.put(Location("z", "k", "u"), Rated(-1, 0, "b"))
    assert nearest.best(here) == Rated(-11, 0, "b")
    nearest.add(Location("", "k", "t"), 5)
    assert nearest.best(here) == Rated(-15, 0, "a")
    nearest.remove("a")
    assert nearest.best(here) == Rated(-11, 0, "b")


def test_all_locations_are_asked_for_at_once() -> None:
    """Each has what it has when it is asked for alone, also one whose switch is not known."""
    nearest = Nearest(POINTS.__getitem__)
    places = [Location("z", "k", "s"), Location("z", "k", "t"), Location("z"), Location("y", "l", "s")]
    assert not list(nearest.best_of_each(places))
    nearest.put(places[0], Rated(0, 0, "a"))
    found = [Rated(-30, 0, "a"), Rated(-10, 0, "a"), Rated(-20, 0, "a"), Rated(-10, 0, "a")]
    assert list(nearest.best_of_each(places)) == list(zip(places, found, strict=True))
    assert [nearest.best(place) for place in places] == found


def test_second_node_of_a_location() -> None:
    """On its switch, in whatever zone, or on another one; for pods on the best one."""
    nearest = Nearest(POINTS.__getitem__)
    here = Location("z", "k", "s")
    nearest.put(here, Rated(-9, 0, "a"))
    assert nearest.second(here, "a") is None
    nearest.put(Location("z", "k", "t"), Rated(0, 0, "b"))
    assert nearest.second(here, "a") == Rated(-10, 0, "b")
    nearest.put(Location("y", "k", "s"), Rated(0, 0, "c"))
    assert nearest.second(here, "a") == Rated(-30, 0, "c")
    nearest.put(here, Rated(-1, 0, "d"))
    assert nearest.second(here, "a") == Rated(-31, 0, "d")
    assert nearest.second(here, "d") == Rated(-39, 0, "a")
    nearest.put(Location("z", "k", "t"), Rated(-22, 0, "b"))
    assert nearest.second(here, "a") == Rated(-32, 0, "b")
    nearest.put(Location("z"), Rated(0, 0, "e"))
    assert nearest.second(Location("z"), "e") == Rated(-42, 0, "b")
