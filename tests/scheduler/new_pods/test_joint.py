"""Wishes of new pods that only two nodes together can serve: always those of brute force over all pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.gpu import total as milli_in
from jupyter_gpu.model.service import Relation, WorkerPart
from jupyter_gpu_scheduler.rules.new_pods.admit import Admission, admit
from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.new_pods.places import fits_apart, places, rate
from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.joint import joints
from jupyter_gpu_scheduler.rules.pairs.terms import BILLION
from jupyter_gpu_scheduler.rules.state.offers import offered_nodes
from jupyter_gpu_scheduler.rules.state.permitted import with_amount
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import NodeFacts
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from tests.builders import new, pod
from tests.scheduler.new_pods.test_places import PAIRS, POLICY, anywhere
from tests.scheduler.pairs.networks import racks
from tests.scheduler.pairs.test_choose import POLICIES, built, clusters, residents, total


@some.composite
def newcomers(draw: some.DrawFn) -> PodState:
    """A pod without a node that may have GPUs of any."""
    chosen = draw(some.sampled_from([{}, {}, {}, {"each": 500}, {"topology": "island"}, {"set": 2000}]))
    me = new(
        "me",
        wants=draw(some.sampled_from([1.5, 2, 2.5, 3, 4])),
        asks={"cpu": 1000 * draw(some.integers(0, 2))},
        ticket=draw(some.sampled_from([None, 0])),
        placement=draw(some.sampled_from([None, None, "local"])),
        **chosen,  # type: ignore[arg-type]
    )
    return replace(me, anywhere=True)


def wishing(me: PodState, milli: int) -> PodState:
    """Return the pod with another amount."""
    assert me.requested
    return replace(me, requested=replace(me.requested, wish=with_amount(me.requested.wish, milli)))


Nodes = Mapping[str, tuple[tuple[Gpu, ...], NodeFacts]]


@given(clusters(), some.lists(residents(), max_size=4), newcomers(), some.sampled_from(sorted(POLICIES)))
@settings(max_examples=60, deadline=None)
def test_two_nodes_together_are_those_of_brute_force(
    nodes: Nodes, pods: Sequence[PodState], me: PodState, policy: str
) -> None:
    """The pod's node gives what it can, and of the others none weighs more for the rest; the Binding carries both."""
    rules, names = POLICIES[policy], sorted(nodes)
    snapshot = built(nodes, {each.uid: each for each in pods})
    chooser, wish = PairChooser(snapshot, rules), me.wish
    assert wish

    def best(asking: PodState, here: str) -> dict[str, float]:
        found = {there: total(snapshot, rules, asking, there, here) for there in nodes if there != here}
        return {there: weight for there, weight in found.items() if weight is not None}

    expected: dict[str, tuple[int, float]] = {}
    divisible = wish.placement != "local" and not wish.set and wish.topology is None
    for here in names if divisible else ():
        for own in sorted(accumulate(wish.pieces), reverse=True)[1:]:
            weight = total(snapshot, rules, wishing(me, own), here, here)
            if weight is not None:
                beside = best(wishing(me, wish.milli - own), here)
                if beside:
                    both = own * weight + (wish.milli - own) * max(beside.values())
                    expected[here] = (own, both / wish.milli)
                break
    found = joints(chooser, me, names)
    assert {here: one.here.wish and one.here.wish.milli for here, one in found.items()} == {
        here: own for here, (own, _) in expected.items()
    }
    for here, one in found.items():
        assert one.points / BILLION == pytest.approx(expected[here][1], abs=1e-6)
        assert best(wishing(me, one.rest), here)[one.pair.gpu_node] == pytest.approx(
            max(best(wishing(me, one.rest), here).values()), abs=1e-6
        )
    for here in places(snapshot, chooser, me, names).fitting:
        admitted = admit(snapshot, chooser, me, here)
        assert isinstance(admitted, Admission)
        away = admitted.part.milli if admitted.part else 0
        assert milli_in(admitted.allocated.shares) + away == wish.milli
        if away not in (0, wish.milli):
            assert (here in expected, away) == (True, wish.milli - expected[here][0])
            assert not best(me, here)
    for here in set(expected) - set(places(snapshot, chooser, me, names).fitting):
        raise AssertionError(f"{here} serves the wish together with another node")


def test_three_gpus_of_nodes_with_two() -> None:
    """The pod's node gives two and the nearest other one the third; where some node has all three, it gives all."""
    snapshot, me = racks([("1", "2"), ("3",)], {"1": 2, "2": 2, "3": 2}), anywhere(wants=3)
    chooser = PairChooser(snapshot, PAIRS)
    assert set(places(snapshot, chooser, me, ["1", "2", "3"]).fitting) == {"1", "2", "3"}
    assert rate(snapshot, chooser, me, ["1", "2", "3"], POLICY)["1"] == 10
    found = admit(snapshot, chooser, me, "1")
    assert isinstance(found, Admission)
    assert found.part
    assert (milli_in(found.allocated.shares), found.part.node, found.part.milli) == (2000, "2", 1000)
    alone = replace(me, anywhere=False)
    assert not places(snapshot, chooser, alone, ["1"]).fitting
    assert isinstance(admit(snapshot, chooser, replace(me, model_allowances=(("A100", 2000),)), "1"), GpuError)
    larger = racks([("1", "2"), ("3",)], {"1": 2, "2": 2, "3": 3})
    found = admit(larger, PairChooser(larger, PAIRS), me, "1")
    assert isinstance(found, Admission)
    assert not found.allocated.shares
    assert found.part
    assert (found.part.node, found.part.milli) == ("3", 3000)


def test_pod_that_only_two_nodes_could_ever_serve_waits() -> None:
    """It keeps a ticket in no line, and comes before later ones once both have room; one for three nodes is refused."""
    busy = [pod("a", wants=2, has=[0, 1], node="1"), pod("b", wants=1, has=[10], node="2")]
    snapshot, me = racks([("1", "2")], {"1": 2, "2": 2}, busy), anywhere(wants=3)
    chooser = PairChooser(snapshot, PAIRS)
    assert not places(snapshot, chooser, me, ["1", "2"]).fitting
    found = nominate(snapshot, me, ["1", "2"], POLICY)
    assert found
    assert (found.allocated.reason, found.allocated.ticket) == (Reason.DEFERRED, 1)
    assert NOMINATED not in found.allocated.extra
    for refused in (anywhere(wants=5), anywhere(wants=3, topology="island"), replace(me, anywhere=False)):
        decision = nominate(snapshot, refused, ["1", "2"], POLICY)
        assert decision
        assert decision.allocated.reason is Reason.INFEASIBLE
    waiting = replace(me, allocated=found.allocated, offered=offered_nodes(["1", "2"]))
    snapshot.put_pod(waiting)
    assert not fits_apart(chooser, waiting)
    later = replace(anywhere(wants=3), uid="later")
    snapshot.remove_pod("a")
    assert fits_apart(chooser, waiting)
    assert not places(snapshot, chooser, later, ["1", "2"]).fitting
    admitted = admit(snapshot, chooser, waiting, "1")
    assert isinstance(admitted, Admission)
    assert admitted.part == WorkerPart("w1", "2", 1000, Relation.SWITCH)
    one_of_them = racks([("1", "2")], {"1": 2})
    decision = nominate(one_of_them, me, ["1", "2"], POLICY)
    assert decision
    assert decision.allocated.reason is Reason.INFEASIBLE, "no other node has a GPU"


def test_rest_comes_after_what_the_own_node_gives() -> None:
    """In a fair line the owner of the pod has the own part already when the rest is compared with others' wishes."""
    owner = OwnerStanding(holds=0, guaranteed=2000)
    first = replace(pod("first", wants=1, node="2"), standing=OwnerStanding(holds=1000, guaranteed=0))
    snapshot = racks([("1", "2")], {"1": 2, "2": 1}, [first])
    me = replace(anywhere(wants=3), standing=owner)
    assert not joints(PairChooser(snapshot, PAIRS), me, ["1"])
    more = replace(me, standing=replace(owner, guaranteed=3000))
    assert joints(PairChooser(snapshot, PAIRS), more, ["1"])


def test_nothing_is_divided_for_a_pod_that_wants_no_gpu() -> None:
    """Nor for one beyond its limit."""
    snapshot = racks([("1", "2")], {"1": 2, "2": 2})
    chooser = PairChooser(snapshot, PAIRS)
    assert not joints(chooser, replace(new("idle"), anywhere=True), ["1", "2"])
    assert not joints(chooser, replace(anywhere(wants=3), limit=2000), ["1", "2"])
