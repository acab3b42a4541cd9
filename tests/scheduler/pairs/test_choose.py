"""The best pair of nodes: always that of brute force over all pairs, also after any changes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.service import Relation, WorkerPart
from jupyter_gpu_scheduler.rules.pairs.choose import KINDS, PairChooser, worker_of
from jupyter_gpu_scheduler.rules.pairs.relation import Network, location_of, relate
from jupyter_gpu_scheduler.rules.pairs.terms import BILLION, PairPolicy
from jupyter_gpu_scheduler.rules.pairs.workers import promise
from jupyter_gpu_scheduler.rules.queue.candidates import has_resources, unacceptable
from jupyter_gpu_scheduler.rules.queue.fit_cache import fit_on, known_fits
from jupyter_gpu_scheduler.rules.scoring.expectation import expectation
from jupyter_gpu_scheduler.rules.scoring.fragmentation import fragmentation
from jupyter_gpu_scheduler.rules.scoring.policy import PRESETS, Policy, preferred
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.shape import ShapeGpu, after, shape_of
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot, NodeFacts
from jupyter_gpu_scheduler.rules.state.taints import Taint, Toleration
from tests.builders import GIB, cluster, facts, gpu, inventory, new, pod, requested, uuid

from .networks import LEAF, SOURCE, node, racks, rules

NAMES = "abcdef"
PRIORITIES = {uuid(0): 9, uuid(11): 0, uuid(21): 3}
POLICIES = {
    "fgd": PairPolicy(Policy(weights={**PRESETS["fgd"], "cpu_headroom": 2})),
    "narrow": PairPolicy(Policy(weights={"cpu_headroom": 3, "relation": 1}, headroom=2000)),
    "pack": PairPolicy(Policy(weights=PRESETS["pack"]), network=Network(unknown=10)),
    "source": PairPolicy(Policy(weights=SOURCE, models={"B": 9, "A": 3}), network=Network(speeds={"x": 400})),
    "odd": PairPolicy(
        Policy(weights={"relation": 1, "switch_free": -3, "cpu_headroom": -1, "memory_free": 1, "disk_free": -1})
    ),
    "nothing": PairPolicy(Policy(weights={}), worker={}),
}


def total(snapshot: ClusterSnapshot, rules: PairPolicy, me: PodState, gpu_node: str, pod_node: str) -> float | None:
    """Return the weight of a pair, as the design page defines it; ``None``: it can't serve the pod."""
    there, here = snapshot.facts(gpu_node), snapshot.facts(pod_node)
    one = gpu_node == pod_node
    asking = me if one else worker_of(me, me.wish or Wish(0), rules)
    found, _ = fit_on(snapshot, asking, gpu_node, known_fits(snapshot, asking))
    slots = here.allocatable.get(SLOT, 0) - snapshot.slots_taken(pod_node)
    if not found.fits or not has_resources(asking, there) or not has_resources(me, here):
        return None
    if slots < me.slots or not here.schedulable:
        return None
    near, far = (location_of(snapshot, name, rules.network) for name in (pod_node, gpu_node))
    points = rules.network.points(Relation.NODE if one else relate(near, far))
    before, later = found.shape, after(found.shape, found.grants)
    given = sum(milli for _, milli in found.grants)
    free_here = sum(gpu.free for gpu in (later if one else shape_of(snapshot, pod_node) or ()) if gpu.healthy)
    free_there = sum(gpu.free for gpu in later if gpu.healthy)
    cpu = there.allocatable["cpu"] - there.used["cpu"]
    growth = fragmentation(rules.policy, later, cpu - asking.asks.get("cpu", 0)) - fragmentation(
        rules.policy, before, cpu
    )
    working = [gpu for gpu in later if gpu.healthy]
    ratings: dict[str, float] = {
        "relation": points / 100,
        "fragmentation": 1 / (1 + math.exp(growth / 1000)),
        "together": 1.0 if len(found.grants) < 2 else 0.5 / len(found.grants),  # no GPUs are joined here
        "preference": liked(rules, [found.shape[index] for index, _ in found.grants]),
        "gpu_free": free_there / (1000 * len(working)),
        "gpu_compute_free": sum(gpu.free * gpu.pace for gpu in working) / (10**6 * len(working)),
        "gpu_memory_free": sum(gpu.free * gpu.memory for gpu in working) / sum(1000 * gpu.memory for gpu in working),
        "left_for_others": expectation(snapshot, gpu_node, rules.policy).of_others(given),
        **{
            name: max(0.0, left(rules, here, name, key, me.asks.get(key, 0))) / here.allocatable[key]
            for name, key in (("cpu_free", "cpu"), ("memory_free", "memory"), ("disk_free", "ephemeral-storage"))
        },
        "cpu_headroom": mean(headroom(rules, there, asking, free_there), headroom(rules, here, me, free_here)),
        "network_free": mean(1 - (there.network or 0), 1 - (here.network or 0)),
        "switch_speed": mean(speed(rules, there, far.switch), speed(rules, here, near.switch)),
        "switch_free": mean(idle_switch(snapshot, rules, far[1:]), idle_switch(snapshot, rules, near[1:])),
    }
    weights = rules.policy.weights
    return sum(
        20 * (weights.get(name, 0) * rating if weights.get(name, 0) > 0 else -weights.get(name, 0) * (1 - rating))
        for name, rating in ratings.items()
    )


def liked(rules: PairPolicy, given: Sequence[ShapeGpu]) -> float:
    """Return the mean preference for GPUs."""
    found = [preferred(rules.policy, one.model, one.priority, slow=one.slow) for one in given]
    return sum(found) / len(found)


def mean(one: float, other: float) -> float:
    """Return the mean of the ratings of both nodes."""
    return (one + other) / 2


def headroom(rules: PairPolicy, about: NodeFacts, asking: PodState, free: int) -> float:
    """Rate the CPU that is left for free GPUs."""
    cpu = left(rules, about, "cpu_headroom", "cpu", asking.asks.get("cpu", 0))
    return max(0.0, min(1.0, 1000 * cpu / (rules.policy.headroom * free))) if free else 1.0


def left(rules: PairPolicy, about: NodeFacts, name: str, key: str, more: int) -> float:
    """Return what is left of a resource by requests, or by real use if that is less and the weight does not pack."""
    there, asked = about.allocatable[key], about.used.get(key, 0)
    if rules.policy.weights.get(name, 0) > 0 and key in about.busy:
        return min(there - asked, there - there * about.busy[key]) - more
    return there - asked - more


def speed(rules: PairPolicy, about: NodeFacts, switch: str) -> float:
    """Rate the speed of a node's uplink."""
    known = rules.network.speeds.get(switch, about.speed)
    return 0.5 if known is None else min(1.0, known / 100_000)


def idle_switch(snapshot: ClusterSnapshot, rules: PairPolicy, switch: tuple[str, ...]) -> float:
    """Rate the use of the uplinks of a switch."""
    on = [name for name in snapshot.nodes() if location_of(snapshot, name, rules.network)[1:] == switch]
    used = [use for name in on if (use := snapshot.facts(name).network) is not None]
    return 1 - sum(used) / len(used) if switch[0] and used else 0.5


@some.composite
def inventories(draw: some.DrawFn, number: int) -> tuple[Gpu, ...]:
    """GPUs of one node: none to three, of two models, some broken."""
    return tuple(
        gpu(
            index,
            uuid=uuid(10 * number + index),
            model=draw(some.sampled_from("AB")),
            healthy=draw(HEALTHY),
            slow=not draw(HEALTHY),
            compute=draw(some.sampled_from([None, 1000, 4000])),
        )
        for index in range(draw(some.integers(0, 3)))
    )


HEALTHY = some.sampled_from([True, True, True, False])
NODES = some.builds(
    node,
    some.sampled_from(["", "x", "y"]),
    zone=some.sampled_from(["", "", "east", "west"]),
    key=some.sampled_from([LEAF, "ib.coreweave.cloud/leafgroup"]),
    cpu=some.integers(1, 12),
    used=some.integers(0, 6),
    slots=some.sampled_from([0, 1, 2, 9, 9]),
    schedulable=some.sampled_from([True, True, True, False]),
    network=some.sampled_from([0.0, 0.3, 0.7, 1.0]),
    speed=some.sampled_from([None, 25_000, 100_000, 400_000]),
    busy=some.dictionaries(some.sampled_from(["cpu", "memory", "ephemeral-storage"]), some.sampled_from([0, 0.5, 1])),
)
"""Facts of nodes, in one or two zones, with and without switches."""


@some.composite
def residents(draw: some.DrawFn) -> PodState:
    """A pod that runs or waits on one of the nodes."""
    number = draw(some.integers(0, len(NAMES) - 1))
    return pod(
        f"pod-{draw(some.integers(0, 5))}",
        wants=draw(some.sampled_from([0.5, 1, 2])),
        has={10 * number: draw(some.sampled_from([250, 500, 1000]))} if draw(some.booleans()) else None,
        ticket=draw(some.sampled_from([None, 1])),
        node=NAMES[number],
    )


@some.composite
def newcomers(draw: some.DrawFn) -> PodState:
    """A pod without a node that wants GPUs."""
    return new(
        "me",
        wants=draw(some.sampled_from([0.25, 1, 1.5, 2])),
        asks={"cpu": 1000 * draw(some.integers(0, 4)), "memory": 64 * GIB},
        ticket=draw(some.sampled_from([None, 0])),
        model=draw(some.sampled_from([(), (), ("A",)])),
        placement=draw(some.sampled_from([None, "any", "local"])),
    )


@some.composite
def clusters(draw: some.DrawFn) -> dict[str, tuple[tuple[Gpu, ...], NodeFacts]]:
    """Nodes with their GPUs."""
    return {name: (draw(inventories(number)), draw(NODES)) for number, name in enumerate(NAMES) if draw(HEALTHY)}


def built(nodes: Mapping[str, tuple[tuple[Gpu, ...], NodeFacts]], pods: Mapping[str, PodState]) -> ClusterSnapshot:
    """Return a snapshot that was never changed."""
    snapshot = ClusterSnapshot(PRIORITIES)
    for name, (gpus, about) in nodes.items():
        snapshot.put_node(name, gpus, about)
    for each in pods.values():
        snapshot.put_pod(each)
    return snapshot


def brute(
    snapshot: ClusterSnapshot, rules: PairPolicy, me: PodState, pod_nodes: Sequence[str]
) -> Iterator[tuple[float, str, str]]:
    """Yield the weights of all pairs that can serve a pod."""
    for gpu_node in snapshot.nodes():
        for pod_node in pod_nodes:
            if gpu_node == pod_node or me.wish is None or me.wish.placement != "local":
                found = total(snapshot, rules, me, gpu_node, pod_node)
                if found is not None:
                    yield found, gpu_node, pod_node


@given(clusters(), some.lists(residents(), max_size=5), newcomers(), some.sampled_from(sorted(POLICIES)))
@settings(max_examples=60, deadline=None)
def test_best_pair_is_that_of_brute_force(
    nodes: Mapping[str, tuple[tuple[Gpu, ...], NodeFacts]], pods: Sequence[PodState], me: PodState, policy: str
) -> None:
    """No pair of all weighs more, and the pair has the points that the definition gives it."""
    snapshot, rules = built(nodes, {each.uid: each for each in pods}), POLICIES[policy]
    pair = PairChooser(snapshot, rules).for_new(me, sorted(nodes))
    known = {(gpu_node, pod_node): found for found, gpu_node, pod_node in brute(snapshot, rules, me, sorted(nodes))}
    if pair is None:
        assert not known
        return
    assert known[pair[:2]] == pytest.approx(pair.points / BILLION, abs=1e-6)
    assert max(known.values()) <= known[pair[:2]] + 1e-6


@given(clusters(), some.lists(residents(), max_size=5), newcomers(), some.sampled_from(sorted(POLICIES)))
@settings(max_examples=30, deadline=None)
def test_best_node_for_a_running_pod_is_that_of_brute_force(
    nodes: Mapping[str, tuple[tuple[Gpu, ...], NodeFacts]], pods: Sequence[PodState], me: PodState, policy: str
) -> None:
    """Among the other nodes none weighs more as the node of GPUs; what its own node adds is the same for all."""
    snapshot, rules = built(nodes, {each.uid: each for each in pods}), POLICIES[policy]
    me = replace(me, node="a", allocated=None, asks={}, slots=0)
    wish = replace(me.requested.wish, placement="any") if me.requested else Wish(0)
    pair = PairChooser(snapshot, rules).for_running(me, wish)
    pending = replace(me, node="", requested=replace(me.requested, wish=wish) if me.requested else None)
    snapshot.put_node("a", *(nodes.get("a") or ((), facts())))
    about = replace(snapshot.facts("a"), schedulable=True, allocatable={**node().allocatable, "cpu": 99_000})
    about = replace(about, used={"cpu": 0})
    snapshot.put_node("a", snapshot.gpus("a") or (), about)
    found = {gpus: weight for weight, gpus, _ in brute(snapshot, rules, pending, ["a"]) if gpus != "a"}
    assert (pair is None) == (not found)
    if pair:
        assert found[pair.gpu_node] >= max(found.values()) - 1e-6


@given(some.data(), clusters(), some.sampled_from(sorted(POLICIES)))
@settings(max_examples=40, deadline=None)
def test_answers_after_changes_are_those_of_a_new_index(
    data: some.DataObject, nodes: dict[str, tuple[tuple[Gpu, ...], NodeFacts]], policy: str
) -> None:
    """Whatever nodes and pods came, changed and went: a chooser that saw it all decides as one that begins now."""
    rules = POLICIES[policy]
    pods: dict[str, PodState] = {}
    snapshot = built(nodes, pods)
    chooser = PairChooser(snapshot, rules)
    for _ in range(data.draw(some.integers(1, 6))):
        change = data.draw(some.sampled_from(["node", "remove", "pod", "end"]))
        name = data.draw(some.sampled_from(NAMES))
        if change == "node":
            nodes[name] = (data.draw(inventories(NAMES.index(name))), data.draw(NODES))
            snapshot.put_node(name, *nodes[name])
        elif change == "remove" and name in nodes:
            del nodes[name]
            snapshot.remove_node(name)
        elif change == "pod":
            changed = data.draw(residents())
            pods[changed.uid] = changed
            snapshot.put_pod(changed)
        elif pods:
            uid, _ = pods.popitem()
            snapshot.remove_pod(uid)
        me = data.draw(newcomers())
        afresh = PairChooser(built(nodes, pods), rules)
        assert chooser.for_new(me, sorted(nodes)) == afresh.for_new(me, sorted(nodes))
        running = replace(me, node=data.draw(some.sampled_from(NAMES)), allocated=None)
        assert chooser.for_running(running, Wish(1000)) == afresh.for_running(running, Wish(1000))


def test_cpu_and_gpus_on_different_nodes_make_a_pair() -> None:
    """With CPU on node 1 alone and a GPU on node 2 alone, the pair is 2 and 1, and has 30 points."""
    about = {"1": node("s", cpu=8), "2": node("s", cpu=8, used=7)}
    snapshot = cluster({"1": 0, "2": 1}, about=about)
    me = new("me", wants=1, asks={"cpu": 4000})
    assert PairChooser(snapshot, rules({"relation": 5})).for_new(me, ["1", "2"]) == ("2", "1", 30 * BILLION)
    assert PairChooser(snapshot, rules({"relation": 5})).for_new(replace(me, asks={"cpu": 9000}), ["1", "2"]) is None


def test_wish_for_own_gpus_gets_no_other_node() -> None:
    """A wish with the placement "local" gets both on one node, or nothing."""
    snapshot = racks([("1", "2")], {"2": 1})
    local, anywhere = (new("me", wants=1, placement=placement) for placement in ("local", None))
    chooser = PairChooser(snapshot, rules({"relation": 5}))
    assert chooser.for_new(local, ["1"]) is None
    assert chooser.for_new(anywhere, ["1"]) == ("2", "1", 30 * BILLION)
    assert chooser.for_new(local, ["1", "2"]) == ("2", "2", 100 * BILLION)


def test_pod_that_wants_no_gpu_or_may_have_none_gets_no_pair() -> None:
    """There is nothing to choose."""
    chooser = PairChooser(racks([("1", "2")], {"2": 1}), rules({}))
    assert chooser.for_new(new("me"), ["1"]) is None
    beyond = new("me", wants=2, limit=1)
    assert unacceptable(beyond)
    assert chooser.for_new(beyond, ["1"]) is None


def test_other_terms_can_outweigh_the_relation() -> None:
    """The own node is left for its switch if the rest of the source's weights differs by half of its scale."""
    assert 20 * sum(weight for name, weight in SOURCE.items() if name != "relation") == 140
    gpus = {"1": inventory(8, models=["Old"]), "2": inventory(8, models=["New"])}
    pods = [pod("x", wants=7, has=range(7), node="1")]
    for old, expected in ((0, "2"), (6, "1")):
        policy = PairPolicy(Policy(weights=SOURCE, models={"New": 10, "Old": old}))
        about = {"1": node("s", network=1.0, speed=1000), "2": node("s", network=1.0, speed=100_000)}
        snapshot = cluster(gpus, pods, about)
        pair = PairChooser(snapshot, policy).for_new(new("me", wants=1), ["1"])
        assert pair
        assert pair.gpu_node == expected
    modest = PairPolicy(Policy(weights={"relation": 5, "preference": 3.5}, models={"New": 10, "Old": 0}))
    pair = PairChooser(snapshot, modest).for_new(new("me", wants=1), ["1"])
    assert pair
    assert pair.gpu_node == "1"


def test_ties_are_decided_by_fragmentation_then_one_node_then_names() -> None:
    """A pair that is as good as another in points is the better one if it leaves GPUs more useful."""
    level = PairPolicy(Policy(weights={"relation": 5}), network=Network(node=30))
    snapshot = racks([("1", "2", "3", "4")], {"2": 2, "3": 2, "4": 2}, [pod("x", wants=0.5, has={20: 500}, node="3")])
    chooser = PairChooser(snapshot, level)
    found = chooser.for_new(new("me", wants=0.5), "1234")
    assert found
    assert found[:2] == ("3", "3"), "It fills what is cut already; of all nodes for the pod, the same one."
    snapshot.remove_pod("x")
    found = chooser.for_new(new("me", wants=0.5), "1234")
    assert found
    assert found[:2] == ("2", "2")
    found = chooser.for_new(new("me", wants=0.5), "1")
    assert found
    assert found[:2] == ("2", "1")


def test_unlabelled_nodes_are_on_one_switch_unless_an_administrator_says_otherwise() -> None:
    """Unknown is 30 points; with 10, a node on the same switch is better than one that is not known to be."""
    about = {"1": node("s"), "2": node(), "3": node("s"), "4": node("t")}
    snapshot = cluster({"1": 0, "2": 1, "3": 1, "4": 1}, about=about)
    usual, strict = (rules({"relation": 5}, network=Network(unknown=points)) for points in (30, 10))
    running = replace(new("me", wants=1), node="1")
    assert PairChooser(snapshot, usual).for_running(running, Wish(1000)) == ("2", "1", 30 * BILLION)
    assert PairChooser(snapshot, strict).for_running(running, Wish(1000)) == ("3", "1", 30 * BILLION)
    snapshot.remove_node("3")
    assert PairChooser(snapshot, strict).for_running(running, Wish(1000)) == ("2", "1", 10 * BILLION)


def test_pods_that_wait_are_served_before_the_pair() -> None:
    """GPUs that a pod ahead gets are no part of any pair; a pod behind takes nothing."""
    ahead = pod("first", wants=1, has=(), ticket=1, node="2")
    snapshot = racks([("1", "2", "3")], {"2": 1, "3": 1}, [ahead])
    chooser = PairChooser(snapshot, rules({"relation": 5}))
    later = replace(new("me", wants=1, ticket=2), node="1")
    earlier = replace(new("me", wants=1, ticket=0), node="1")
    for _ in range(2):
        assert chooser.for_running(later, Wish(1000)) == ("3", "1", 30 * BILLION)
        assert chooser.for_running(later, Wish(1000)) == ("3", "1", 30 * BILLION)
        assert chooser.for_running(earlier, Wish(1000)) == ("2", "1", 30 * BILLION)


def test_pods_after_all_that_wait_get_the_same() -> None:
    """Until a node changes, and until one comes before any of those that wait."""
    snapshot = racks([("1", "2", "3")], {"2": 1, "3": 1}, [pod("first", wants=1, has=(), ticket=1, node="2")])
    chooser = PairChooser(snapshot, rules({"relation": 5}))

    def where(ticket: int) -> str | None:
        me = replace(new(f"me-{ticket}", wants=1, ticket=ticket), node="1")
        found = chooser.for_running(me, Wish(1000))
        return found.gpu_node if found else None

    assert [where(ticket) for ticket in (8, 9, 0, 7)] == ["3", "3", "2", "3"]
    snapshot.put_pod(pod("second", wants=1, has=(), ticket=5, node="3"))
    assert [where(ticket) for ticket in (8, 9, 4, 6, 0, 4, 9)] == [None, None, "3", None, "2", "3", None]


def test_use_of_a_switch_counts_for_all_its_nodes() -> None:
    """A busy neighbour makes the whole switch worse, at once and for nodes that did not change."""
    about = {"1": node("s"), "2": node("t", network=0.2), "3": node("u", network=0.2), "9": node("t", network=0.2)}
    snapshot = cluster({"1": 0, "2": 1, "3": 1, "9": 0}, about=about)
    chooser = PairChooser(snapshot, rules({"relation": 5, "switch_free": 1}))
    running = replace(new("me", wants=1), node="1")
    assert chooser.for_running(running, Wish(1000)) == ("2", "1", 18 * BILLION)
    snapshot.put_node("9", (), node("t", network=1.0))
    assert chooser.for_running(running, Wish(1000)) == ("3", "1", 18 * BILLION)
    snapshot.put_node("9", (), node("u", network=1.0))
    assert chooser.for_running(running, Wish(1000)) == ("2", "1", 18 * BILLION)
    snapshot.remove_node("9")
    assert chooser.for_running(running, Wish(1000)) == ("2", "1", 18 * BILLION)
    snapshot.put_node("2", snapshot.gpus("2") or (), node("t"))
    assert chooser.for_running(running, Wish(1000)) == ("3", "1", 18 * BILLION), "What is not known is one half."


def test_use_of_the_own_uplink_counts_for_its_switch() -> None:
    """Though the pod's own node gives it nothing, its neighbours share the switch."""
    snapshot = cluster({"1": 0, "2": 1, "3": 1}, about={"1": node("s"), "2": node("s"), "3": node("t", network=0.5)})
    chooser = PairChooser(snapshot, rules({"relation": 1, "switch_free": 5}))
    running = replace(new("me", wants=1), node="1")
    for use, expected in ((0.1, "2"), (1.0, "3"), (0.2, "2")):
        snapshot.put_node("1", (), node("s", network=use))
        found = chooser.for_running(running, Wish(1000))
        assert found
        assert found.gpu_node == expected


def test_cost_of_a_decision_grows_with_the_changes_alone() -> None:
    """After the first decision, only nodes that changed are examined, however many there are."""
    names = [f"n{number:03}" for number in range(300)]
    snapshot = racks([names[start : start + 10] for start in range(0, 300, 10)], dict.fromkeys(names, 1))
    chooser = PairChooser(snapshot, POLICIES["fgd"])
    running = replace(new("me", wants=1), node="n000")
    examined: list[str] = []
    original = ClusterSnapshot.facts

    def counting(self: ClusterSnapshot, name: str) -> NodeFacts:
        examined.append(name)
        return original(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ClusterSnapshot, "facts", counting)
        assert chooser.for_running(running, Wish(1000))
        first = len(examined)
        assert set(examined) == set(names)
        examined.clear()
        snapshot.put_pod(pod("x", wants=1, has=[10], node="n001"))
        snapshot.remove_node("n002")
        assert chooser.for_running(running, Wish(1000))
        assert set(examined) <= {"n000", "n001", "n002"}
        assert len(examined) * 50 < first


def test_nodes_without_room_are_not_examined(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once no GPU of a node has room for a share, neither its line nor its slots count; once one has, they do again."""
    snapshot = racks([("1", "2", "3")], {"2": 1, "3": 1})
    chooser = PairChooser(snapshot, rules({"relation": 5}))
    examined: list[str] = []
    original = ClusterSnapshot.slots_taken

    def counting(self: ClusterSnapshot, name: str) -> int:
        examined.append(name)
        return original(self, name)

    monkeypatch.setattr(ClusterSnapshot, "slots_taken", counting)

    def where() -> str | None:
        examined.clear()
        found = chooser.for_running(replace(new("me", wants=1), node="1"), Wish(1000))
        return found.gpu_node if found else None

    assert where() == "2"
    snapshot.put_pod(pod("x", wants=0.5, has={10: 500}, node="2"))
    assert where() == "3"
    assert not examined
    snapshot.remove_pod("x")
    assert where() == "2"
    assert "2" in examined


def test_kinds_of_wishes_are_forgotten_in_the_end() -> None:
    """The index used least recently is dropped for a new one, and made again when it is needed."""
    chooser = PairChooser(racks([("1", "2")], {"2": 1}), rules({"relation": 5}))
    running = replace(new("me", wants=1), node="1")
    for number in range(KINDS + 2):
        assert chooser.for_running(running, Wish(1000, memory=1 + number % (KINDS + 1)))
    assert len(chooser._indexes) == KINDS


def test_ratings_of_gpus_are_forgotten_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """However few are kept, the answer is the same."""
    snapshot = racks([("1", "2", "3", "4")], {"2": 3, "3": 2, "4": 1})
    running = replace(new("me", wants=1), node="1")
    expected = PairChooser(snapshot, POLICIES["fgd"]).for_running(running, Wish(1000))
    monkeypatch.setattr("jupyter_gpu_scheduler.rules.pairs.terms.KNOWN", 1)
    assert expected
    assert PairChooser(snapshot, POLICIES["fgd"]).for_running(running, Wish(1000)) == expected


def test_best_nodes_beside_others_are_asked_for_in_order() -> None:
    """Those on the switch of GPUs first, then by name; a node with GPUs is beside another one, if there is any."""
    me = replace(new("me", wants=2), anywhere=True)
    snapshot = racks([("1", "2"), ("3", "4", "5"), ("6",)], {"1": 1, "3": 2, "5": 2})
    chooser = PairChooser(snapshot, rules({"relation": 5}))
    for most in range(8):
        assert chooser.best_beside(me, "654321", most) == list("345126")[:most]
    assert chooser.best_beside(me, "62", 9) == ["2", "6"]
    snapshot.put_node("5", (), snapshot.facts("5"))
    for most in range(8):
        assert chooser.best_beside(me, "654321", most) == list("45126")[:most]
    snapshot.remove_node("3")
    assert chooser.best_beside(me, "654321", 9) == []


def test_worker_goes_only_where_kube_scheduler_can_place_it() -> None:
    """Beside the workers that are promised there, which have no pod yet; and where taints do not keep it out."""
    taints = frozenset({Taint("gpu", "", "NoSchedule")})
    about = {"n2": facts(slots=1, cpu=4), "n3": facts(slots=2, cpu=1), "n4": facts(slots=3, taints=taints)}
    snapshot = cluster({"n1": 0, "n2": 4, "n3": 4, "n4": 4}, about=about)
    rules = PairPolicy(worker={"cpu": 600})
    chooser = PairChooser(snapshot, rules)
    me, open_minded = pod("a", 1, node="n1"), frozenset({Toleration("gpu", None)})

    def where(me: PodState = me) -> str | None:
        found = chooser.for_running(me, Wish(1000))
        return found.gpu_node if found else None

    assert where() in ("n2", "n3")
    snapshot.put_pod(new("waits", 1, ticket=9, on="n2"))
    snapshot.put_pod(promise(me, requested(1), WorkerPart("w1", "n2"), rules.worker))
    assert where() == "n3", "its slot is promised"
    snapshot.put_pod(promise(replace(me, uid="b"), requested(1), WorkerPart("w1", "n3"), rules.worker))
    assert where() is None, "its CPU is promised"
    assert where(replace(me, tolerations=open_minded)) == "n4"
    snapshot.remove_pod("worker:b:w1")
    assert where() == "n3"
