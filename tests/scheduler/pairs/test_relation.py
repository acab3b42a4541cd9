"""How near two nodes are, by their labels; and the table of the text that the design follows, digit for digit."""

from __future__ import annotations

import math
import re
from typing import Any

import pytest

from jupyter_gpu.model.service import Relation
from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.nearest import Nearest, Rated
from jupyter_gpu_scheduler.rules.pairs.relation import (
    SWITCH_KEYS,
    ZONE,
    Location,
    Network,
    locate,
    location_of,
    relate,
)
from jupyter_gpu_scheduler.rules.pairs.terms import BILLION, Terms
from jupyter_gpu_scheduler.rules.queue.fit_cache import fits_on
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import cluster, new

from .networks import LEAF, node, racks, rules

SWITCHES = (("1", "2", "4"), ("3", "5", "6"), ("7",))
SECOND_SET = ("1", "2", "3")
TABLE = {
    "1": (100, 30, 10, 30, 10, 10, 10),
    "2": (30, 100, 10, 30, 10, 10, 10),
    "3": (10, 10, 100, 10, 30, 30, 10),
}
"""By node of the GPUs, for the pod on node 1, 2 and so on."""
SETS = {
    "1": ({"2", "4"}, {"3", "5", "6", "7"}),
    "2": ({"1", "4"}, {"3", "5", "6", "7"}),
    "3": ({"5", "6"}, {"1", "2", "4", "7"}),
}
"""The third and the fourth set: nodes on the same and on other switches."""
ALONE = rules({"relation": 5})


def seven(gpus: tuple[str, ...] = SECOND_SET) -> ClusterSnapshot:
    """Return the seven nodes of the table."""
    return racks(SWITCHES, dict.fromkeys(gpus, 1))


def points_of(snapshot: ClusterSnapshot, gpu_node: str, pod_node: str) -> float:
    """Return the points of a pair, with no weight but that of the relation."""
    here, there = (location_of(snapshot, name, ALONE.network) for name in (pod_node, gpu_node))
    relation = Relation.NODE if gpu_node == pod_node else relate(here, there)
    return Terms(ALONE, {}).relation(relation) / BILLION


def test_relations_are_those_of_the_table() -> None:
    """21 totals, 100 on one node, 30 on one switch, 10 on others; the second set has the nodes with a free GPU."""
    snapshot = seven()
    fitting = [name for name, found, _ in fits_on(snapshot, new("me", wants=1), "1234567") if found.fits]
    assert tuple(fitting) == SECOND_SET
    found = {gpus: tuple(points_of(snapshot, gpus, pod) for pod in "1234567") for gpus in fitting}
    assert found == TABLE
    assert sum(len(row) for row in found.values()) == 21


@pytest.mark.parametrize("gpu_node", SECOND_SET)
def test_sets_of_the_same_and_of_other_switches_are_those_of_the_table(gpu_node: str) -> None:
    """Seen from the GPUs' node, the others are divided into these two sets."""
    snapshot = seven()
    here = location_of(snapshot, gpu_node, Network())
    sets: dict[Relation, set[str]] = {}
    for name in set("1234567") - {gpu_node}:
        sets.setdefault(relate(here, location_of(snapshot, name, Network())), set()).add(name)
    assert (sets[Relation.SWITCH], sets[Relation.OTHER]) == SETS[gpu_node]


def test_each_total_of_the_table_is_chosen_where_it_is_the_only_one() -> None:
    """With a GPU on one node and one node for the pod, the pair has exactly the total of the table."""
    for gpu_node, row in TABLE.items():
        for pod_node, total in zip("1234567", row, strict=True):
            chooser = PairChooser(seven((gpu_node,)), ALONE)
            pair = chooser.for_new(new("me", wants=1), [pod_node])
            assert pair == (gpu_node, pod_node, total * BILLION)


@pytest.mark.parametrize(
    ("one", "other", "relation"),
    [
        (Location("z", "k", "s"), Location("z", "k", "s"), Relation.SWITCH),
        (Location("y", "k", "s"), Location("z", "k", "s"), Relation.SWITCH),
        (Location("", "k", "s"), Location("z", "k", "t"), Relation.OTHER),
        (Location("y", "k", "s"), Location("z", "l", "s"), Relation.OTHER),
        (Location("y"), Location("z"), Relation.OTHER),
        (Location("y", "k", "s"), Location("z"), Relation.OTHER),
        (Location("z", "k", "s"), Location("z", "l", "s"), Relation.UNKNOWN),
        (Location("z", "k", "s"), Location("z"), Relation.UNKNOWN),
        (Location(), Location("z", "k", "s"), Relation.UNKNOWN),
        (Location(), Location(), Relation.UNKNOWN),
    ],
)
def test_relation_follows_from_switches_then_zones(one: Location, other: Location, relation: Relation) -> None:
    """Switches are compared if both are named by one label, else zones; what can't be compared is unknown."""
    assert relate(one, other) is relation
    assert relate(other, one) is relation


def test_first_label_that_a_node_has_names_its_switch() -> None:
    """Labels nearest to the node come first; an empty one counts as none."""
    near, far = SWITCH_KEYS[0], SWITCH_KEYS[1]
    assert locate({far: "b", near: "a", ZONE: "z"}) == ("z", near, "a")
    assert locate({far: "b", near: ""}) == ("", far, "b")
    assert locate({"rack": "r", far: "b"}, ("rack",)) == ("", "rack", "r")
    assert locate({}) == Location()


def test_location_follows_the_labels_of_a_node() -> None:
    """It is read again once the node changed, and by the labels that the settings name."""
    snapshot = cluster({"n": 1}, about={"n": node("s")})
    assert location_of(snapshot, "n", Network()) == ("", LEAF, "s")
    assert location_of(snapshot, "n", Network(switch_keys=("rack",))) == Location()
    snapshot.put_node("n", snapshot.gpus("n") or (), node("t", zone="z"))
    assert location_of(snapshot, "n", Network()) == ("z", LEAF, "t")


def test_points_of_relations_are_settings() -> None:
    """Unknown counts as the same switch, unless an administrator says otherwise."""
    assert [Network().points(relation) for relation in Relation] == [100, 30, 10, 30]
    assert Network(unknown=10).points(Relation.UNKNOWN) == 10


def test_best_node_is_found_by_location() -> None:
    """The best node of each class counts, with the points of the class."""
    nearest = Nearest({Relation.SWITCH: 30, Relation.OTHER: 10, Relation.UNKNOWN: 20}.__getitem__)
    here = Location("z", "k", "s")
    assert nearest.best(here, "p") is None
    nearest.put(Location("z", "k", "t"), Rated(-15, 0, "far"))
    nearest.put(here, Rated(0, 0, "near"))
    for _ in range(2):
        nearest.put(here, Rated(-9, 0, "p"))
    assert nearest.best(here, "p") == (-30, 0, "near")
    assert nearest.best(here) == (-39, 0, "p")
    nearest.add(Location("", "k", "t"), 6)
    assert nearest.best(here, "p") == (-31, 0, "far")
    nearest.put(Location("z"), Rated(-12, 0, "unknown"))
    assert nearest.best(here, "p") == (-32, 0, "unknown")
    for name in ("unknown", "far", "near", "near"):
        nearest.remove(name)
    assert nearest.best(here, "p") is None


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"unknown": 101}, "'relation.unknown' must be a number from 0 to 100."),
        ({"node": -1}, "'relation.node' must be a number from 0 to 100."),
        ({"other": math.nan}, "'relation.other' must be a number from 0 to 100."),
        ({"switch_keys": ("a b",)}, "'relation.switchKeys' must be names of labels, at most 32."),
        ({"switch_keys": ("a",) * 33}, "'relation.switchKeys' must be names of labels, at most 32."),
        ({"full_speed": 0}, "Speeds in 'relation' must be 1 to 100000000 Mbit/s."),
        ({"speeds": {"x": -1}}, "Speeds in 'relation' must be 1 to 100000000 Mbit/s."),
    ],
)
def test_settings_of_the_network_that_make_no_sense_are_refused(fields: dict[str, Any], words: str) -> None:
    """With a sentence that names the key."""
    with pytest.raises(ValueError, match=re.escape(words)):
        Network(**fields)
    assert Network(switch_keys=()).switch_keys == ()
