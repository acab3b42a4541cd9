"""Pods are ended for another only if that gives it its GPUs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_scheduler.rules.new_pods.preemption import helpful
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, NodeFacts
from tests.builders import cluster, facts, inventory, new, pod

VITAL = new("vital", wants=1)


def test_pods_end_only_where_that_frees_enough_gpus() -> None:
    """Pods that hold too few GPUs would end in vain; so would all pods of a node that can never serve the wish."""
    pods = [
        pod("rich", wants=2, has=[0, 1], node="n"),
        pod("poor", wants=0, has=[], node="n"),
        pod("part", wants=0.5, has={10: 500}, node="m"),
        pod("other", wants=0.5, has={10: 500}, node="m"),
        pod("few", wants=1, has=[20], node="k"),
    ]
    snapshot = cluster({"n": 2, "m": 1, "k": 1}, pods)
    assert helpful(snapshot, VITAL, {"n": ["poor"]}) == ()
    assert helpful(snapshot, VITAL, {"n": ["rich"], "m": ["part"], "k": ["few"]}) == ("n", "k")
    assert helpful(snapshot, VITAL, {"m": ["part", "other"], "n": ["rich", "poor"]}) == ("m", "n")
    assert helpful(snapshot, new("big", wants=2), {"n": ["rich"], "k": ["few"]}) == ("n",)


def test_free_gpu_needs_no_holder_to_end() -> None:
    """CPU or a slot is missing then, and ending the pods that kube-scheduler chose frees that."""
    about = {"n": NodeFacts(allocatable={SLOT: 2}, used={SLOT: 2})}
    pods = [pod("a", wants=1, has=[0], node="n"), pod("b", wants=0, has=[], node="n")]
    snapshot = cluster({"n": 2}, pods, about)
    assert helpful(snapshot, VITAL, {"n": ["b"]}) == ("n",)
    assert helpful(snapshot, VITAL, {"n": ["of no interest here"]}) == (), "no slot comes free"
    assert helpful(snapshot, new("vital"), {"n": ["b"]}) == ("n",), "who wants none needs a slot only"


def test_no_pod_ends_for_gpus_owed_to_a_waiting_pod() -> None:
    """GPUs that come free would go to a waiting pod: no pod is ended for that."""
    pods = [pod("a", wants=1, has=[0], node="n"), pod("waits", wants=1, has=[], ticket=1, node="n")]
    snapshot = cluster({"n": 1}, pods)
    assert helpful(snapshot, VITAL, {"n": ["a"]}) == ()
    assert helpful(snapshot, VITAL, {"n": ["a", "waits"]}) == ("n",)
    assert helpful(snapshot, new("vital", wants=1, priority=5), {"n": ["a"]}) == ("n",)


def test_preemption_that_makes_no_sense_is_refused() -> None:
    """No victims, no GPUs, unknown or cordoned nodes, or a wish that can't be read or is too much: no pod is ended."""
    pods = [pod("a", wants=1, has=[0], node="n"), pod("b", wants=1, has=[10], node="m")]
    snapshot = cluster({"n": 1, "m": 1, "none": 0}, pods, {"m": facts(schedulable=False)})
    assert helpful(snapshot, VITAL, {}) == ()
    assert helpful(snapshot, VITAL, {"n": []}) == ()
    assert helpful(snapshot, VITAL, {"none": ["a"], "unknown": ["a"], "m": ["b"]}) == ()
    assert helpful(snapshot, VITAL, {"n": ["b"]}) == (), "it is on another node"
    assert helpful(snapshot, replace(VITAL, fault="It can't be read."), {"n": ["a"]}) == ()
    assert helpful(snapshot, new("vital", wants=1, limit=0), {"n": ["a"]}) == ()


@given(data=st.data())
def test_asking_changes_nothing(data: Any) -> None:
    """The snapshot and what is answered from it are the same before and after; all victims gone is never worse."""
    gpus = data.draw(st.integers(0, 4))
    holders = [pod(f"p{index}", wants=1, has=[index], node="n") for index in range(data.draw(st.integers(0, gpus)))]
    waiting = [pod("w", wants=1, has=[], ticket=1, node="n", priority=data.draw(st.integers(0, 9)))]
    pods = [*holders, *data.draw(st.sampled_from([[], waiting]))]
    broken = [0] if gpus and data.draw(st.booleans()) else []
    snapshot = cluster({"n": inventory(gpus, unhealthy=broken)}, pods)
    names = [one.uid for one in pods]
    victims = data.draw(st.lists(st.sampled_from([*names, "x"]), unique=True))
    me = new("me", wants=data.draw(st.integers(1, 3)), priority=data.draw(st.integers(0, 9)))
    before = (snapshot.pods("n"), snapshot.facts("n"), [snapshot.free(gpu.uuid) for gpu in snapshot.gpus("n") or ()])
    found = helpful(snapshot, me, {"n": victims})
    assert found == helpful(snapshot, me, {"n": victims})
    assert before == (
        snapshot.pods("n"),
        snapshot.facts("n"),
        [snapshot.free(gpu.uuid) for gpu in snapshot.gpus("n") or ()],
    )
    if found:
        assert helpful(snapshot, me, {"n": [*names, "x"]})
