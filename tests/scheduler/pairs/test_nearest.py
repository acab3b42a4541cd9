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
