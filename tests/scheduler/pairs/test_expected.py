"""Expectations of other nodes for pods without a wish: always those of a look at all nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.new_pods.places import places, rate
from jupyter_gpu_scheduler.rules.pairs import expected as module
from jupyter_gpu_scheduler.rules.pairs.choose import KINDS, PairChooser
from jupyter_gpu_scheduler.rules.pairs.relation import Network, location_of, relate
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.queue.candidates import has_resources
from jupyter_gpu_scheduler.rules.scoring.expectation import expectation
from jupyter_gpu_scheduler.rules.scoring.policy import PRESETS, Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot, NodeFacts
from jupyter_gpu_scheduler.rules.state.taints import Taint, Toleration
from tests.builders import GIB, cluster, inventory, new, pod

from .networks import node, racks
from .test_choose import NAMES, NODES, built, clusters, inventories, residents

PAIRS = PairPolicy()
POLICY = PAIRS.policy


def anywhere(**fields: object) -> PodState:
    """Return a new pod without a wish that may have GPUs of any node."""
    return replace(new("me", **fields), anywhere=True)  # type: ignore[arg-type]


def elsewhere(snapshot: ClusterSnapshot, rules: PairPolicy, me: PodState, here: str, coming: float) -> float:
    """Return by how much other nodes raise what can be expected on one, as the guide for administrators defines it."""
    worker = replace(me, asks=rules.worker)

    def able(name: str) -> bool:
        about = snapshot.facts(name)
        free = about.allocatable.get(SLOT, 0) > snapshot.slots_taken(name)
        return free and about.schedulable and has_resources(worker, about)

    def of(name: str, more: float = 0.0) -> float:
        return expectation(snapshot, name, rules.policy, me.wish).with_more(more).of_one_more

    place = location_of(snapshot, here, rules.network)
    others = [
        of(name) * rules.network.points(relate(place, location_of(snapshot, name, rules.network))) / 100
        for name in snapshot.nodes()
        if name != here and able(name)
    ]
    return (1 - of(here, coming)) * max(others, default=0)


@given(
    some.data(),
    clusters(),
    some.lists(residents(), max_size=5),
    some.sampled_from([PAIRS, PairPolicy(Policy(weights=PRESETS["pack"]), network=Network(other=0, unknown=5))]),
    some.sampled_from([0, 2, 16]),
)
@settings(max_examples=60, deadline=None)
def test_expectation_is_that_of_brute_force_after_any_changes(
    data: some.DataObject,
    nodes: dict[str, tuple[tuple[Gpu, ...], NodeFacts]],
    pods: Sequence[PodState],
    rules: PairPolicy,
    few: int,
) -> None:
    """Whichever nodes changed between two questions, and however many pods are on their way."""
    snapshot = built(nodes, {each.uid: each for each in pods})
    chooser = PairChooser(snapshot, rules)
    me = anywhere(**data.draw(some.sampled_from([{}, {"wants": 0, "model": ("A",)}])))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "FEW", few)
        for _ in range(data.draw(some.integers(1, 5))):
            for name in data.draw(some.sets(some.sampled_from(NAMES), max_size=2)):
                if data.draw(some.sampled_from([True, True, False])):
                    snapshot.put_node(name, data.draw(inventories(NAMES.index(name))), data.draw(NODES))
                else:
                    snapshot.remove_node(name)
            there = sorted(snapshot.nodes())
            asked = [name for name in there if data.draw(some.booleans())]
            coming = {name: 1.5 for name in NAMES if data.draw(some.sampled_from([True, False, False]))}
            found = chooser.expected(me).raise_scores(dict.fromkeys(asked, 0.25), coming, 0.5)
            wanted = {name: 0.25 + elsewhere(snapshot, rules, me, name, coming.get(name, 0.0)) / 2 for name in asked}
            assert found == pytest.approx(wanted)


def test_answers_follow_each_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes of the best node, the next one, on the same switch and others, of a node that was or is no answer."""
    snapshot = cluster(dict.fromkeys("1234567", 2), about={name: node("s" if name < "4" else "t") for name in "123456"})
    chooser, me = PairChooser(snapshot, PAIRS), anywhere()
    names = list(snapshot.nodes())
    changes = [(name, gpus, node(switch)) for name in "17425" for gpus in (0, 8, 1) for switch in ("s", "t", "")]
    for name, gpus, about in [("1", 8, node("s")), *changes, *((name, 0, node()) for name in "1234567")]:
        snapshot.put_node(name, tuple(inventory(gpus)), about)
        found = chooser.expected(me).raise_scores(dict.fromkeys(names, 0.0), {"1": 2.0}, 1.0)
        wanted = {each: elsewhere(snapshot, PAIRS, me, each, 2.0 * (each == "1")) for each in names}
        assert found == pytest.approx(wanted), (name, gpus)
        assert chooser.expected(me).raise_scores(dict.fromkeys(names, 0.0), {"1": 2.0}, 1.0) == found
    monkeypatch.setattr(module, "FEW", 1)
    snapshot.remove_node("7")
    snapshot.put_node("2", tuple(inventory(2)), node("s"))
    found = chooser.expected(me).raise_scores({"1": 0.0}, {}, 1.0)
    assert found == pytest.approx({"1": elsewhere(snapshot, PAIRS, me, "1", 0.0)})


def test_best_node_may_be_followed_by_an_equal_one() -> None:
    """The one before, which did not change, then counts on that one."""
    names = ("1", "2", "3")
    snapshot = cluster({"1": 0, "2": 8, "3": 2}, about=dict.fromkeys(names, node("s")))
    chooser, me = PairChooser(snapshot, PAIRS), anywhere()
    for gpus in (0, 8):
        snapshot.put_node("1", tuple(inventory(gpus)), node("s"))
        found = chooser.expected(me).raise_scores(dict.fromkeys(names, 0.0), {}, 1.0)
        assert found == pytest.approx({name: elsewhere(snapshot, PAIRS, me, name, 0.0) for name in names})


def best(snapshot: ClusterSnapshot, me: PodState, *names: str, policy: Policy = POLICY) -> list[str]:
    """Return those of ``names`` with the highest score."""
    chooser = PairChooser(snapshot, PairPolicy(policy))
    assert set(places(snapshot, chooser, me, names).fitting) == set(names)
    scores = rate(snapshot, chooser, me, names, policy)
    return [name for name, score in scores.items() if score == 10]


def test_pod_without_a_wish_goes_near_gpus_that_are_free() -> None:
    """To the node with them; where it is full, to a node on its switch, with GPUs in use or without any."""
    snapshot = racks([("1", "2", "3"), ("4", "5")], {"2": 8, "3": 1})
    snapshot.put_pod(pod("a", wants=1, has=[20], node="3"))
    assert best(snapshot, anywhere(), "1", "2", "4", "5") == ["2"]
    assert best(snapshot, anywhere(), "1", "4", "5") == ["1"]
    assert set(best(snapshot, anywhere(), "1", "3", "4")) == {"1", "3"}
    with_own = replace(new("me"), slots=0)
    assert best(snapshot, with_own, "1", "4", "5") == ["1", "4", "5"], "it can never have any"
    cold = Policy.from_settings({"weights": {"expected": 0}})
    assert best(snapshot, anywhere(), "1", "4", "5", policy=cold) == ["1", "4", "5"]


def test_own_gpus_come_first() -> None:
    """One free GPU of its own node is worth more than eight on its switch, and those add to it."""
    snapshot = racks([("1", "2"), ("3", "4")], {"1": 1, "2": 8, "3": 1})
    assert best(snapshot, anywhere(), "1", "4") == ["1"]
    assert best(snapshot, anywhere(), "1", "3") == ["1"]
    assert best(snapshot, anywhere(), "2", "1") == ["2"]


@pytest.mark.parametrize(
    ("about", "fields"),
    [
        (node("s", cpu=8, used=8), {}),
        (node("s", slots=0), {}),
        (node("s", schedulable=False), {}),
        (node("s", ready=False), {}),
        (node("s", taints=frozenset([Taint("gpu", "", "NoSchedule")])), {}),
        (node("s"), {"wants": 0, "model": ("H100",)}),
        (node("s"), {"wants": 0, "memory": 200 * GIB}),
    ],
)
def test_node_that_could_give_nothing_does_not_count(about: NodeFacts, fields: dict[str, object]) -> None:
    """It takes no worker, or has other GPUs than the pod seeks."""
    snapshot = cluster(
        {"1": 0, "2": inventory(2, models=["A100", "A100"]), "3": 0}, about={"1": node("s"), "2": about, "3": node("t")}
    )
    assert best(snapshot, anywhere(**fields), "1", "3") == ["1", "3"]
    tolerant = replace(anywhere(**fields), tolerations=frozenset([Toleration()]))
    assert best(snapshot, tolerant, "1", "3") == (["1"] if about.taints else ["1", "3"])


def test_least_recent_kind_of_pod_is_forgotten() -> None:
    """Answers stay those of a fresh look."""
    snapshot = racks([("1", "2"), ("3",)], {"2": 1})
    chooser = PairChooser(snapshot, PAIRS)
    for number in (*range(KINDS + 1), 0):
        me = anywhere(wants=0, memory=number)
        scores = chooser.expected(me).raise_scores({"1": 0.0, "3": 0.0}, {}, 1.0)
        assert scores == PairChooser(snapshot, PAIRS).expected(me).raise_scores({"1": 0.0, "3": 0.0}, {}, 1.0)
        assert scores["1"] > scores["3"]
