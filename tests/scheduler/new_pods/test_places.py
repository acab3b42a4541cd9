"""Places of new pods with GPUs of their own or of another node: always those of brute force over all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu.model.errors import GpuError, Infeasible, LimitExceeded, NoCapacity
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.service import Relation, WorkerPart
from jupyter_gpu_scheduler.rules.new_pods import places as module
from jupyter_gpu_scheduler.rules.new_pods.admit import Admission, admit
from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.new_pods.places import fits_apart, next_of_kinds, places, rate
from jupyter_gpu_scheduler.rules.pairs.choose import KINDS, Pair, PairChooser
from jupyter_gpu_scheduler.rules.pairs.joint import joints
from jupyter_gpu_scheduler.rules.pairs.terms import BILLION, PairPolicy
from jupyter_gpu_scheduler.rules.queue.candidates import acceptable, has_resources
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import node_score, scores_of
from jupyter_gpu_scheduler.rules.state.offers import offered_nodes
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, NodeFacts
from tests.builders import cluster, new, pod
from tests.scheduler.pairs.networks import node, racks
from tests.scheduler.pairs.test_choose import (
    NAMES,
    NODES,
    POLICIES,
    built,
    clusters,
    inventories,
    newcomers,
    residents,
    total,
)

PAIRS = PairPolicy()
POLICY = PAIRS.policy


def anywhere(**fields: object) -> PodState:
    """Return a new pod that may have GPUs of any node."""
    return replace(new("me", **fields), anywhere=True)  # type: ignore[arg-type]


def weights(
    snapshot: ClusterSnapshot, rules: PairPolicy, me: PodState, names: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Return the weights of all pairs by the pod's node and the GPUs': of its own alone where that serves the wish."""
    found: dict[str, dict[str, float]] = {}
    for here in names:
        pairs = {there: total(snapshot, rules, me, there, here) for there in snapshot.nodes()}
        able = {there: weight for there, weight in pairs.items() if weight is not None}
        if here in able or (me.wish and me.wish.placement == "local"):
            able = {here: able[here]} if here in able else {}
        if able:
            found[here] = able
    return found


@given(
    some.data(),
    clusters(),
    some.lists(residents(), max_size=5),
    some.sampled_from(["fgd", "narrow", "pack", "source", "odd", "nothing"]),
)
@settings(max_examples=50, deadline=None)
def test_places_are_those_of_brute_force_after_any_changes(
    data: some.DataObject,
    nodes: dict[str, tuple[tuple[Gpu, ...], NodeFacts]],
    pods: Sequence[PodState],
    policy: str,
) -> None:
    """Filter names the nodes with a pair, prioritize rates by the best, and bind takes it; whatever changed before."""
    rules = POLICIES[policy]
    snapshot = built(nodes, {each.uid: each for each in pods})
    chooser = PairChooser(snapshot, rules)
    for _ in range(data.draw(some.integers(1, 3))):
        name = data.draw(some.sampled_from(NAMES))
        nodes[name] = (data.draw(inventories(NAMES.index(name))), data.draw(NODES))
        snapshot.put_node(name, *nodes[name])
        me = replace(data.draw(newcomers()), anywhere=True)
        names = [name for name in nodes if acceptable(me, nodes[name][1]) and has_resources(me, nodes[name][1])]
        found = weights(snapshot, rules, me, names)
        together = set(joints(chooser, me, names)) - set(found)  # see test_joint
        assert set(places(snapshot, chooser, me, names).fitting) == set(found) | together
        points = chooser.points(me, names)
        for count in (1, 2, len(names)):
            in_order = sorted(points, key=lambda here: (-points[here], here))
            assert chooser.best_beside(me, names, count) == in_order[:count]
        apart = {here: max(able.values()) for here, able in found.items() if here not in able}
        if me.wish and me.wish.placement != "local":
            others = {
                here: [total(snapshot, rules, me, there, here) for there in nodes if there != here] for here in names
            }
            best = {
                here: max(able)
                for here, all_of in others.items()
                if (able := [one for one in all_of if one is not None])
            }
            assert {here: one / BILLION for here, one in points.items()} == pytest.approx(best, abs=1e-6)
        scores = rate(snapshot, chooser, me, names, rules.policy)
        assert {here for here, score in scores.items() if score} <= set(found) | together
        stays = bool(me.wish and me.wish.placement == "local")  # its nodes are rated without their networks
        if found and not together and not stays:
            most = max(max(able.values()) for able in found.values())
            least = min(max(able.values()) for able in found.values())
            assert all(scores[here] == 10 for here, able in found.items() if max(able.values()) > most - 1e-9)
            assert most - least < 1 or min(scores[here] for here in found) < 10 or len(found) == 1
        for here in names:
            admitted = admit(snapshot, chooser, me, here)
            if here in together:
                continue
            if here not in found:
                assert isinstance(admitted, GpuError)
                continue
            assert isinstance(admitted, Admission)
            part = admitted.part
            assert (part is None) == (here in found[here])
            assert not (part and admitted.allocated.shares)
            if part and me.wish:
                assert found[here][part.node] == pytest.approx(apart[here], abs=1e-6)
                assert part.milli == me.wish.milli
        assert chooser.points(me, names) == PairChooser(built(nodes, {p.uid: p for p in pods}), rules).points(me, names)


@given(clusters(), some.lists(residents(), max_size=4), newcomers(), some.sampled_from(["fgd", "source", "odd"]))
@settings(max_examples=30, deadline=None)
def test_score_of_a_node_is_that_of_its_pair_with_itself(
    nodes: Mapping[str, tuple[tuple[Gpu, ...], NodeFacts]], pods: Sequence[PodState], me: PodState, policy: str
) -> None:
    """With what its network adds; so nodes with their own GPUs and nodes with those of others can be compared."""
    rules = POLICIES[policy]
    snapshot = built(nodes, {each.uid: each for each in pods})
    network = PairChooser(snapshot, rules).network(replace(me, anywhere=True), list(nodes))
    for name in nodes if network or policy == "fgd" else ():
        weight = total(snapshot, rules, me, name, name)
        if weight is not None:
            rest = weight - network.get(name, 0) / BILLION
            assert node_score(snapshot, me, name, rules.policy) == pytest.approx(
                scores_of(rules.policy, {"": rest / 20})[""]
            )


def test_pod_that_fits_nowhere_by_itself_lands_as_a_pair() -> None:
    """CPU on node 1 alone, GPUs on node 2 alone: it goes to 1, with the part that 2 serves."""
    about = {"1": node("s", cpu=8), "2": node("s", cpu=8, used=7)}
    snapshot, me = cluster({"1": 0, "2": 2}, about=about), anywhere(wants=2, asks={"cpu": 4000})
    chooser = PairChooser(snapshot, PAIRS)
    assert places(snapshot, chooser, me, ["1"]).fitting == ("1",)
    assert rate(snapshot, chooser, me, ["1"], POLICY) == {"1": 10}
    generation = me.requested.generation if me.requested else 0
    assert admit(snapshot, chooser, me, "1") == (Allocated(generation), WorkerPart("w1", "2", 2000, Relation.SWITCH))
    alone = replace(me, anywhere=False)
    assert places(snapshot, chooser, alone, ["1"]).never.keys() == {"1"}
    assert isinstance(admit(snapshot, chooser, alone, "1"), Infeasible)
    assert rate(snapshot, chooser, alone, ["1"], POLICY) == {"1": 0}


def test_fast_and_idle_uplinks_draw_pods_by_the_policy_source() -> None:
    """Nodes with their own GPUs are rated by their network, too; of a pod that stays on its node it does not count."""
    about = {
        "busy": node("x", speed=100_000, network=0.9),
        "fast": node("y", speed=100_000, network=0.1),
        "slow": node("z", speed=10_000, network=0.1),
    }
    snapshot = cluster({"busy": 2, "fast": 2, "slow": 2}, about=about)
    names, source = list(about), PairPolicy(Policy.from_settings({"name": "source"}))
    me = anywhere(wants=1)
    found = rate(snapshot, PairChooser(snapshot, source), me, names, source.policy)
    assert found["fast"] == 10
    assert max(found["busy"], found["slow"]) < 10
    local = rate(snapshot, PairChooser(snapshot, source), replace(me, anywhere=False), names, source.policy)
    assert local == dict.fromkeys(names, 10)
    speed = PairPolicy(Policy(weights={"switch_speed": 1.0}))
    assert PairChooser(snapshot, speed).network(me, ["slow", "fast"]) == {"slow": 2 * BILLION, "fast": 20 * BILLION}
    assert PairChooser(snapshot, PAIRS).network(me, names) == {}
    assert PairChooser(snapshot, source).network(anywhere(), names) == {}


def test_pair_that_is_gone_is_chosen_anew_or_refused() -> None:
    """By the time of the bind other pods may have the GPUs: the next best node gives them, or a sentence says why."""
    snapshot, me = racks([("1", "2"), ("3",)], {"2": 1, "3": 1}), anywhere(wants=1)
    chooser = PairChooser(snapshot, PAIRS)

    def part() -> str:
        found = admit(snapshot, chooser, me, "1")
        return found.part.node if isinstance(found, Admission) and found.part else ""

    assert (part(), chooser.beside(me, "1") and chooser.relation(Pair("2", "1", 0))) == ("2", Relation.SWITCH)
    assert chooser.relation(Pair("1", "1", 0)) is Relation.NODE
    snapshot.put_pod(pod("a", wants=1, has=[10], node="2"))
    assert part() == "3"
    snapshot.put_pod(pod("b", wants=1, has=[20], node="3"))
    refused = admit(snapshot, chooser, me, "1")
    assert isinstance(refused, NoCapacity)
    assert refused.message.endswith("No other node can give the GPUs now, either.")
    found = places(snapshot, chooser, me, ["1", "2", "3"])
    assert (found.fitting, set(found.failed), set(found.never)) == ((), {"2", "3"}, {"1"})
    beyond = replace(me, limit=0)
    assert isinstance(admit(snapshot, chooser, beyond, "1"), LimitExceeded)
    assert places(snapshot, chooser, beyond, ["1"]).never.keys() == {"1"}
    assert not places(snapshot, chooser, anywhere(wants=1, placement="local"), ["1"]).fitting


def test_cut_wish_is_served_as_far_as_it_is_permitted() -> None:
    """The part is what the limit permits, and the record says that it is less than the wish."""
    snapshot, me = racks([("1", "2")], {"2": 4}), replace(anywhere(wants=3), allowance=2000)
    found = admit(snapshot, PairChooser(snapshot, PAIRS), me, "1")
    assert isinstance(found, Admission)
    assert found.part
    assert (found.part.milli, found.allocated.reason) == (2000, Reason.LIMIT_EXCEEDED)
    assert found.allocated.message.startswith("2 of 3 GPUs.")


def waits(uid: str, ticket: int, offered: Sequence[str] | None, on: str = "", **fields: object) -> PodState:
    """Return a pod that waits and may have GPUs of any node."""
    waiting = new(uid, ticket=ticket, on=on, **fields)  # type: ignore[arg-type]
    return replace(waiting, anywhere=True, offered=None if offered is None else offered_nodes(offered))


def test_no_pod_overtakes_one_that_could_have_a_pair() -> None:
    """The first pod that could start with another node's GPUs is first; one that waits for something else is not."""
    snapshot = racks([("1", "2")], {"2": 1})
    chooser, me = PairChooser(snapshot, PAIRS), anywhere(wants=1)
    for first, fits in (
        (waits("first", 3, ["1"], wants=0.5), False),
        (waits("first", 3, ["1"], wants=2), True),
        (waits("first", 3, ["2"], wants=1), True),
        (waits("first", 3, None, wants=1), True),
        (replace(waits("first", 3, ["1"], wants=1), blocked=True), True),
        (replace(waits("first", 3, ["1"], wants=1), anywhere=False), True),
    ):
        snapshot.put_pod(first)
        assert bool(places(snapshot, chooser, me, ["1"]).fitting) is fits, first
        assert isinstance(admit(snapshot, chooser, me, "1"), Admission) is fits
        assert places(snapshot, chooser, replace(first, offered=None), ["1"]).fitting == (
            ("1",) if first.anywhere and first.wish and first.wish.milli <= 1000 else ()
        )
    snapshot.put_pod(waits("first", 3, ["1"], wants=1))
    snapshot.put_pod(waits("second", 4, ["1"], wants=1))
    assert [one.uid for one in next_of_kinds(snapshot)] == ["first"]
    assert fits_apart(chooser, waits("second", 4, ["1"], wants=1))


def test_pod_for_nodes_without_gpus_waits_in_no_line() -> None:
    """They can never serve it, but others may: it keeps a ticket. One that needs GPUs of its own node is refused."""
    about = {"1": replace(node("s"), labels={"pool": "cpu"}), "2": node("s")}
    snapshot = cluster({"1": 0, "2": 1}, [pod("a", wants=1, has=[10], node="2")], about)
    me = replace(anywhere(wants=1), selector={"pool": "cpu"}, offered=offered_nodes(["1"]))
    found = nominate(snapshot, me, ["1"], POLICY)
    assert found
    assert (found.allocated.reason, found.allocated.ticket) == (Reason.DEFERRED, 1)
    assert NOMINATED not in found.allocated.extra
    refused = nominate(snapshot, replace(me, anywhere=False), ["1"], POLICY)
    assert refused
    assert (refused.allocated.reason, refused.allocated.ticket) == (Reason.INFEASIBLE, None)
    without = replace(new("idle"), anywhere=True)
    assert places(snapshot, PairChooser(snapshot, PAIRS), without, ["1", "2"]).fitting == ("1", "2")
    assert places(snapshot, PairChooser(snapshot, PAIRS), new("idle"), ["1", "2"]).fitting == ("2",)


def test_policy_without_weights_rates_all_places_alike() -> None:
    """There is nothing to compare by."""
    snapshot, nothing = racks([("1", "2")], {"2": 1}), Policy(weights={})
    chooser = PairChooser(snapshot, PairPolicy(nothing))
    assert rate(snapshot, chooser, anywhere(wants=1), ["1", "2"], nothing) == {"1": 10, "2": 10}


def test_best_pairs_alone_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Equals are ordered by name; of two nodes that have the GPUs each may take the pod with those of the other."""
    monkeypatch.setattr(module, "MOST", 2)
    full = {"1": node("s"), "2": node("s"), "3": node("t"), "4": node("s", used=64), "5": node("t")}
    snapshot = cluster({"1": 0, "2": 1, "3": 0, "4": 0, "5": 1}, about=full)
    chooser, me = PairChooser(snapshot, PAIRS), anywhere(wants=1, asks={"cpu": 1000})
    names = list(full)
    assert places(snapshot, chooser, me, names).fitting == ("2", "5", "1", "3"), "4 is full"
    assert chooser.best_beside(me, ["2"], 9) == ["2"]
    assert chooser.best_beside(me, ["4"], 9) == []
    assert chooser.best_beside(replace(me, requested=None), names, 9) == []
    snapshot.put_node("1", (), node("s", used=64))
    assert places(snapshot, chooser, me, names).fitting == ("2", "5", "3")
    snapshot.remove_node("2")
    snapshot.remove_node("5")
    assert chooser.best_beside(me, names, 9) == []


def test_order_of_pairs_counts_the_switch_of_each() -> None:
    """Nodes on the switch of the GPUs come before all on another one."""
    about = {"1": node("t", used=50), "2": node("t"), "3": node("t"), "4": node("u"), "5": node("u")}
    snapshot = cluster({"1": 0, "2": 1, "3": 1, "4": 0, "5": 0}, about=about)
    chooser, me = PairChooser(snapshot, PAIRS), anywhere(wants=1, asks={"cpu": 1000})
    points = chooser.points(me, list(about))
    found = chooser.best_beside(me, list(about), 9)
    assert found == sorted(points, key=lambda name: (-points[name], name))
    assert found[3:] == ["4", "5"]
    assert points["4"] == points["5"]


def test_least_recent_kind_of_pod_is_forgotten() -> None:
    """Answers stay those of a fresh look, however many kinds were asked for meanwhile."""
    snapshot = racks([("1", "2", "3")], {"2": 1, "3": 1})
    chooser = PairChooser(snapshot, PAIRS)
    for cpu in (*range(KINDS + 1), 0):
        me = anywhere(wants=1, asks={"cpu": cpu})
        assert chooser.points(me, ["1", "2"]) == PairChooser(snapshot, PAIRS).points(me, ["1", "2"])
