"""Scores of nodes, attribute by attribute and by the policies."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.scoring.policy import PRESETS, Policy, preferred
from jupyter_gpu_scheduler.rules.scoring.score import BEST, NEAR, best, node_score, prioritize
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot, NodeFacts
from tests.builders import GIB, cluster, facts, gpu, inventory, new, pod, uuid


def only(**weights: float) -> Policy:
    """A policy that looks at nothing else."""
    return Policy(weights=weights)


def rated(
    attribute: str,
    gpus: int | Sequence[Gpu] = 2,
    pods: Sequence[PodState] = (),
    me: PodState | None = None,
    about: NodeFacts | None = None,
    **fields: Any,
) -> float:
    """Return the rating of a node by one attribute, for a pod that wants a GPU."""
    snapshot = cluster({"n": gpus}, pods, {"n": about or facts()})
    return node_score(snapshot, me or new("me", wants=1), "n", Policy(weights={attribute: 1.0}, **fields))


def test_free_gpus_raise_the_score() -> None:
    """The compute and the memory that are free after the pod has come count; broken GPUs do not."""
    assert rated("gpu_free", 4) == 0.75
    assert rated("gpu_free", 4, me=new("me", wants=0.5)) == 0.875
    assert rated("gpu_free", inventory(2, unhealthy=[0])) == 0
    assert rated("gpu_memory_free", inventory(2, memory=[20, 60])) == 0.75
    assert rated("gpu_memory_free", inventory(2, memory=[20, 60]), me=new("me", wants=1, memory=30 * GIB)) == 0.25


def test_free_compute_counts_against_the_fastest_gpu_of_the_cluster() -> None:
    """It is the part that is free if all GPUs are alike, or nothing is known; a slow GPU has less to give."""
    fast, slow = (tuple(gpu(index, compute=compute) for index in range(2)) for compute in (60_000, 15_000))
    assert rated("gpu_compute_free") == rated("gpu_compute_free", fast) == rated("gpu_compute_free", slow) == 0.5
    assert rated("gpu_compute_free", 0, me=new("me")) == 0.5
    nodes = cluster({"fast": fast, "slow": slow, "unknown": 2})
    me, policy = new("me", wants=1), only(gpu_compute_free=1)
    assert [node_score(nodes, me, name, policy) for name in ("fast", "slow", "unknown")] == [0.5, 0.125, 0.5]
    mixed = (gpu(0, model="T4", compute=15_000), gpu(1, compute=60_000), gpu(2, compute=60_000, healthy=False))
    assert rated("gpu_compute_free", mixed, me=new("me", wants=1, model=("T4",))) == 0.5


def test_unknown_attribute_scores_one_half() -> None:
    """No GPU, no facts or no preference is neither good nor bad."""
    for attribute in ("gpu_free", "gpu_memory_free", "preference", "cpu_free", "network_free", "fragmentation"):
        assert rated(attribute, 0, me=new("me")) == 0.5
    assert rated("gpu_free", 0, me=new("me"), about=NodeFacts()) == 0.5


def test_other_resources_score_by_the_part_that_is_left() -> None:
    """The part of the node's allocatable that is left after the pod counts; more than all counts as all."""
    about = NodeFacts(
        allocatable={"cpu": 4000, "memory": 100, "ephemeral-storage": 50}, used={"cpu": 1000, "memory": 90}
    )
    me = new("me", asks={"cpu": 1000, "memory": 20, "ephemeral-storage": 5})
    assert rated("cpu_free", me=me, about=about) == 0.5
    assert rated("memory_free", me=me, about=about) == 0
    assert rated("disk_free", me=me, about=about) == 0.9


@pytest.mark.parametrize(
    ("busy", "rating"),
    [({}, 0.5), ({"cpu": 0.25}, 0.5), ({"cpu": 0.5}, 0.25), ({"cpu": 1.0}, 0), ({"memory": 1.0}, 0.5)],
)
def test_busy_node_is_not_free(busy: dict[str, float], rating: float) -> None:
    """Real use counts where it leaves less than what pods ask for, and what the pod asks for comes to it."""
    about = NodeFacts(allocatable={"cpu": 4000}, used={"cpu": 1000}, busy=busy)
    me = new("me", wants=1, asks={"cpu": 1000})
    assert rated("cpu_free", me=me, about=about) == rating
    snapshot = cluster({"n": 2}, about={"n": about})
    head = Policy(weights={"cpu_headroom": 1.0}, headroom=4000)
    assert node_score(snapshot, me, "n", head) == rating
    assert node_score(snapshot, me, "n", only(cpu_free=-1)) == 0.5, "to pack is to count requests"
    assert node_score(snapshot, me, "n", Policy(weights={"cpu_headroom": -1.0}, headroom=4000)) == 0.5


def test_memory_and_disk_in_use_are_not_free() -> None:
    """Each by itself."""
    about = NodeFacts(
        allocatable={"memory": 100, "ephemeral-storage": 50}, busy={"memory": 0.75, "ephemeral-storage": 0.5}
    )
    assert (rated("memory_free", about=about), rated("disk_free", about=about)) == (0.25, 0.5)


def test_new_pods_keep_away_from_a_busy_node() -> None:
    """By the default policy, and by the one that spreads; also pods that want no GPU yet by the latter."""
    snapshot = cluster(
        {"a": 2, "b": 2}, about={"a": facts(cpu=32, busy={"cpu": 1.0}), "b": facts(cpu=32, busy={"cpu": 0.125})}
    )
    assert best(snapshot, new("me", wants=1), ["a", "b"], Policy()) == "b"
    for me in (new("me", wants=1), new("me")):
        assert best(snapshot, me, ["a", "b"], Policy(weights=PRESETS["spread"])) == "b"


@pytest.mark.parametrize(("network", "idle"), [(None, 0.5), (0.25, 0.75), (3.0, 0.0), (-1.0, 1.0)])
def test_idle_network_raises_the_score(network: float | None, idle: float) -> None:
    """The share of the uplink that is idle counts; values out of range are cut off."""
    assert rated("network_free", about=facts(network=network)) == idle


@pytest.mark.parametrize(
    ("gpus", "wants", "near"),
    [
        (inventory(4), 1, 1.0),
        (inventory(4, island=4, switch=2), 2, 1.0),
        (inventory(4, island=4, switch=2), 4, 0.75),
        (inventory(4, island=4), 2, 0.75),
        (inventory(4, island=2, switch=1), 4, 0.25),
        (inventory(4), 2, 0.25),
        (inventory(4, switch=4), 2, 0.25),
    ],
)
def test_near_gpus_raise_the_score(gpus: Sequence[Gpu], wants: int, near: float) -> None:
    """GPUs on one switch score best, then on one island, then scattered."""
    assert rated("together", gpus, me=new("me", wants=wants)) == near


def test_preferred_models_raise_the_score() -> None:
    """Words of the name choose the preference; the highest match counts, and no match is in the middle."""
    policy = Policy(models={"A100": 2, "NVIDIA A100": 8, "H100": 10, "T4": 0})
    found = [preferred(policy, model) for model in ("NVIDIA A100-SXM4-80GB", "H100 PCIe", "T4", "L40S")]
    assert found == [0.8, 1.0, 0.0, 0.5]
    mixed = inventory(2, models=["H100", "T4"])
    assert rated("preference", mixed, models={"H100": 10, "T4": 0}, me=new("me", wants=2)) == 0.5
    assert rated("preference", mixed, models={"H100": 10, "T4": 0}, me=new("me", wants=1, model=("T4",))) == 0


def test_own_priority_of_a_gpu_replaces_that_of_its_model() -> None:
    """It counts from 0 to 9; a slow GPU counts half."""
    policy = Policy(models={"H100": 10})
    found = [preferred(policy, "H100", priority) for priority in (None, 9, 3, 0)]
    assert found == [1.0, 1.0, 3 / 9, 0.0]
    assert [preferred(policy, "H100", priority, slow=True) for priority in (None, 9)] == [0.5, 0.5]
    assert preferred(policy, "T4", slow=True) == 0.25


def test_preferred_gpus_draw_pods_to_their_node() -> None:
    """A priority in the settings, or a GPU that is slow, decides between equal nodes, with and without a wish."""
    for me in (new("me", wants=1), new("me")):
        snapshot = cluster({"a": 1, "b": 1, "c": (gpu(0, slow=True),)}, priorities={uuid(10): 9})
        assert best(snapshot, me, ["c", "a"], Policy()) == "a"
        assert best(snapshot, me, ["c", "a", "b"], Policy()) == "b"


def test_cpu_for_free_gpus_raises_the_score() -> None:
    """The CPU that is left after the pod counts, for each GPU that stays free; not if the pod may want one later."""
    weights, six = {"cpu_headroom": 1.0}, 6000
    snapshot = cluster({"n": 3}, about={"n": facts(cpu=10)})
    for me, rating in (
        (new("me", wants=1, asks={"cpu": 4000}), 0.5),
        (new("me", wants=3, asks={"cpu": 10_000}), 1.0),
        (new("job", slots=0, asks={"cpu": 5500}), 0.25),
    ):
        assert node_score(snapshot, me, "n", Policy(weights=weights, headroom=six)) == rating
    assert node_score(snapshot, new("me", wants=1), "n", Policy(weights=weights, headroom=20_000)) == 0.25
    assert (
        node_score(snapshot, new("me", asks={"cpu": 5500}), "n", Policy(weights={**weights, "cpu_free": 1.0})) == 0.45
    )


def test_fragmentation_lowers_the_score() -> None:
    """A part of a GPU goes best where a part is gone already, worst where it breaks a whole one of a pair."""
    me = new("me", wants=0.5)
    breaks = rated("fragmentation", 1, me=me)
    fills = rated("fragmentation", 1, [pod("a", wants=0.5, has={0: 500}, node="n")], me)
    assert breaks < 0.5 < fills
    assert breaks > 0
    assert fills < 1


def test_cpu_that_strands_gpus_counts_as_fragmentation() -> None:
    """A pod without a GPU that takes the last CPU makes the free GPUs useless."""
    policy: dict[str, Any] = {
        "workload": Policy.from_settings({"workload": [{"share": 1, "gpus": 1, "cpu": 2}]}).workload
    }
    me = new("me", asks={"cpu": 1000})
    assert rated("fragmentation", 1, me=me, about=facts(cpu=2), **policy) < 0.5
    assert rated("fragmentation", 1, me=me, about=facts(cpu=3), **policy) == 0.5


@pytest.mark.parametrize(
    ("weights", "mean"),
    [
        ({"relation": 1, "cpu_free": 1}, 0.5),
        ({"relation": 3, "cpu_free": 1}, 0.75),
        ({"relation": -1}, 0),
        ({"cpu_free": -2}, 1),
        ({"memory_free": 1, "relation": 3, "cpu_free": -4}, 1),
        ({}, 0.5),
        ({"relation": 0}, 0.5),
    ],
)
def test_score_is_the_weighted_mean(weights: Mapping[str, float], mean: float) -> None:
    """A negative weight wants the opposite; weights of 0 count for nothing."""
    full = NodeFacts(
        allocatable={SLOT: 1, "cpu": 1000, "memory": 9}, used={"cpu": 1000}
    )  # relation and memory_free are 1
    snapshot = cluster({"n": 1}, about={"n": full})
    assert node_score(snapshot, new("me", wants=1), "n", only(**weights)) == mean


def test_scores_are_spread_between_best_and_worst() -> None:
    """The best gets the highest, the worst 0, and what does not fit 0 too."""
    snapshot = cluster({"a": 8, "b": 4, "c": 2, "d": 1, "e": 4})
    me = new("me", wants=2)
    assert prioritize(snapshot, me, list("abcd"), only(gpu_free=1)) == {"a": 10, "b": 7, "c": 0, "d": 0}
    assert prioritize(snapshot, me, list("be"), only(gpu_free=1)) == {"b": BEST, "e": BEST}
    assert prioritize(snapshot, me, ["d"], only(gpu_free=1)) == {"d": 0}
    assert prioritize(snapshot, me, [], only(gpu_free=1)) == {}
    assert max(prioritize(snapshot, me, list("abc"), Policy()).values()) == BEST


@pytest.mark.parametrize(("policy", "node"), [("pack", "part"), ("spread", "empty"), ("fgd", "odd")])
def test_policies_choose_different_nodes(policy: str, node: str) -> None:
    """Packing fills the fullest node, spreading takes the emptiest, FGD takes what is of no use for others."""
    pods = [
        pod("a", wants=7, has=range(10, 17), node="part"),
        pod("b", wants=0.5, has={20: 500}, node="odd"),
    ]
    snapshot = cluster({"empty": 8, "part": 8, "odd": 8}, pods)
    chosen = best(snapshot, new("me", wants=0.5), list(snapshot.nodes()), Policy.from_settings({"name": policy}))
    assert chosen == node


def test_best_of_equals_is_the_first_by_name() -> None:
    """No node is best if none fits."""
    snapshot = cluster({"b": 2, "a": 2})
    assert best(snapshot, new("me", wants=2), ["b", "a"], Policy()) == "a"
    assert best(snapshot, new("me", wants=3), ["b", "a"], Policy()) is None


def test_near_ties_are_not_stretched() -> None:
    """A node that is hardly worse than the best gets the same score; a small difference stays a small one."""
    for used, scores in (
        ({"a": 0, "b": 2}, {"a": BEST, "b": BEST}),
        ({"a": 0, "b": 4}, {"a": BEST, "b": BEST - 1}),
        ({"a": 0, "b": 300, "c": 400}, {"a": BEST, "b": 3, "c": 0}),
        ({"a": 0, "b": 2, "c": 400}, {"a": BEST, "b": BEST, "c": 0}),
        ({"a": 0, "b": 3, "c": 400}, {"a": BEST, "b": BEST - 1, "c": 0}),
    ):
        about = {name: facts(cpu=1, used={"cpu": cpu}) for name, cpu in used.items()}
        snapshot = cluster(dict.fromkeys(used, 1), about=about)
        assert NEAR == 0.0025
        assert prioritize(snapshot, new("me", wants=1), list(used), only(cpu_free=1)) == scores


def test_scores_follow_changes() -> None:
    """Cached results are dropped for a node that changes, and for it alone."""
    snapshot: ClusterSnapshot = cluster({"a": 8, "b": 8})
    me, policy = new("me", wants=1), only(gpu_free=1)
    assert prioritize(snapshot, me, ["a", "b"], policy) == {"a": 10, "b": 10}
    snapshot.put_pod(pod("x", wants=2, has=[0, 1], node="a"))
    assert prioritize(snapshot, me, ["a", "b"], policy) == {"a": 0, "b": 10}
    assert prioritize(snapshot, me, ["a", "b"], only(gpu_free=-1)) == {"a": 10, "b": 0}
    snapshot.put_node("b", snapshot.gpus("b") or (), facts(cpu=1))
    assert prioritize(snapshot, me, ["a", "b"], only(cpu_free=1)) == {"a": 0, "b": 10}


def test_presets_name_every_policy() -> None:
    """The presets are the three that the settings know."""
    assert sorted(PRESETS) == ["fgd", "pack", "source", "spread"]
