"""The nodes that can take a new pod, and the reasons that the others give."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from jupyter_gpu.model.errors import Infeasible
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.queue.candidates import FilterResult, acceptable, filter_nodes, has_resources
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot, NodeFacts
from tests.builders import GIB, attached, cluster, facts, inventory, new, pod

A100, H100 = "NVIDIA A100-SXM4-80GB", "NVIDIA H100 PCIe"

Case = tuple[int | Sequence[Gpu], list[PodState], dict[str, Any], str]

FAILED: dict[str, Case] = {
    "too few are free": (
        4,
        [pod("a", wants=2, has=[0, 1], node="n")],
        {"wants": 3},
        "only 2 of 4 GPUs are free, 3 wanted",
    ),
    "one is free": (2, [pod("a", wants=1, has=[0], node="n")], {"wants": 2}, "only 1 of 2 GPUs is free, 2 wanted"),
    "of that model": (
        inventory(4, models=[A100, H100]),
        [pod("a", wants=1, has=[0], node="n")],
        {"wants": 2, "model": ("A100",)},
        "only 1 of 2 GPUs (A100) is free, 2 wanted",
    ),
    "a whole and a half": (
        2,
        [pod("a", wants=1, each=500, has={0: 500, 1: 500}, node="n")],
        {"wants": 1.5},
        "none of 2 GPUs is free, 1.5 wanted",
    ),
    "a half": (
        2,
        [pod("a", wants=1.5, each=750, has={0: 750, 1: 750}, node="n")],
        {"wants": 0.5},
        "no GPU has 0.5 free, the most is 0.25",
    ),
    "a half of this model with much memory": (
        inventory(1, models=[A100]),
        [pod("a", wants=1, has=[0], node="n")],
        {"wants": 0.5, "model": ("A100",), "memory": 20 * GIB},
        "no GPU (A100, 20 GiB in each share) has 0.5 free, the most is 0",
    ),
    "halves": (
        3,
        [pod("a", wants=2, has=[0, 1], node="n")],
        {"wants": 1, "each": 500},
        "only 1 of 3 GPUs is free by 0.5, 2 wanted",
    ),
    "one is broken": (
        inventory(2, unhealthy=[0]),
        [],
        {"wants": 2},
        "only 1 of 2 GPUs is free, 2 wanted (1 does not work)",
    ),
    "two are broken": (
        inventory(2, unhealthy=[0, 1]),
        [],
        {"wants": 0.5},
        "no GPU has 0.5 free, the most is 0 (2 do not work)",
    ),
    "the island": (
        inventory(4, island=2),
        [pod("a", wants=2, has=[0, 2], node="n")],
        {"wants": 2, "topology": "island"},
        "no 2 free GPUs are joined by NVLink (2 of 4 GPUs are free)",
    ),
    "the switch": (
        inventory(4, switch=2),
        [pod("a", wants=2, has=[0, 2], node="n")],
        {"wants": 2, "topology": "switch"},
        "no 2 free GPUs are on one PCIe switch (2 of 4 GPUs are free)",
    ),
    "others came first": (
        4,
        [pod("a", wants=2, has=[0, 1], node="n"), new("b", wants=4, ticket=1, on="n")],
        {"wants": 1},
        "what is free is kept for who came first (2 of 4 GPUs are free)",
    ),
    "what drains is not free": (
        1,
        [pod("a", wants=0, has=[], draining=[0], node="n")],
        {"wants": 1},
        "none of 1 GPU is free, 1 wanted",
    ),
    "what is about to be given back is not free yet": (
        1,
        [pod("a", wants=0, has=[0], attaches=[], node="n")],
        {"wants": 1},
        "none of 1 GPU is free, 1 wanted",
    ),
}

NEVER: dict[str, Case] = {
    "no GPU": (0, [], {"wants": 1}, "the node has no GPU"),
    "too few": (2, [], {"wants": 3}, "only 2 GPUs, 3 wanted"),
    "too few of that model": (
        inventory(3, models=[A100, H100]),
        [],
        {"wants": 2, "model": ("H100",)},
        "only 1 GPU (H100), 2 wanted",
    ),
    "no such model": (
        inventory(2, models=[A100, H100]),
        [],
        {"wants": 1, "model": ("B200", "L4")},
        f"no GPU of model B200 or L4, only {A100}, {H100}",
    ),
    "no such vendor": (2, [], {"wants": 1, "vendor": "AMD"}, "no GPU of vendor AMD, only nvidia"),
    "too few of that vendor": (1, [], {"wants": 2, "vendor": "nvidia"}, "only 1 GPU (nvidia), 2 wanted"),
    "a share of a vendor without them": (
        [replace(gpu, vendor="amd") for gpu in inventory(2)],
        [],
        {"wants": 1.5},
        "GPUs of vendor amd are given as a whole only",
    ),
    "too few of a vendor without shares": (
        [replace(gpu, vendor="amd") for gpu in inventory(2)],
        [],
        {"wants": 3, "vendor": "amd"},
        "only 2 GPUs (amd), 3 wanted",
    ),
    "no such model of that vendor": (
        inventory(1, models=[A100]),
        [],
        {"wants": 1, "vendor": "nvidia", "model": ("MI300X",)},
        f"no GPU of model MI300X, only {A100}",
    ),
    "too little memory": (1, [], {"wants": 1, "memory": 90 * GIB}, "no GPU with 90 GiB of memory in a share of 1 GPU"),
    "too little memory for the half": (
        2,
        [],
        {"wants": 1.5, "memory": 60 * GIB},
        "no GPU with 60 GiB of memory in a share of 0.5 GPU",
    ),
    "no such island": (
        inventory(4, island=2),
        [],
        {"wants": 3, "topology": "island"},
        "at most 2 GPUs joined by NVLink, 3 wanted",
    ),
    "no switch": (4, [], {"wants": 2, "topology": "switch"}, "at most 1 GPU on one PCIe switch, 2 wanted"),
}


def ask(nodes: Mapping[str, int | Sequence[Gpu]], pods: list[PodState], wish: dict[str, Any]) -> FilterResult:
    """Filter all nodes for a new pod."""
    return filter_nodes(cluster(nodes, pods), new("me", **wish), list(nodes))


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in FAILED.items()])
def test_reason_names_the_missing_resource(case: Case) -> None:
    """The reason has words for people, numbers, and no name of a node."""
    gpus, pods, wish, why = case
    assert ask({"n": gpus}, pods, wish) == FilterResult((), {"n": why}, {})


@pytest.mark.parametrize("case", [pytest.param(case, id=name) for name, case in NEVER.items()])
def test_node_that_can_never_serve_is_reported_apart(case: Case) -> None:
    """Nodes that can never serve the wish are listed apart, so that no pod is ended in vain to make room."""
    gpus, pods, wish, why = case
    assert ask({"n": gpus}, pods, wish) == FilterResult((), {}, {"n": why})


@pytest.mark.parametrize(
    ("fields", "why"),
    [
        ({"slots": 0}, f"the node offers no {SLOT}: the node plugin does not run there"),
        ({"slots": 1}, f"no {SLOT} is left (1 of 1 taken)"),
        ({"slots": 5, "used": {SLOT: 5}}, f"no {SLOT} is left (5 of 5 taken)"),
        ({"schedulable": False}, "the node takes no new pods"),
    ],
)
def test_node_that_takes_no_more_pods_is_refused(fields: dict[str, Any], why: str) -> None:
    """The node is refused whatever is free of its GPUs, also for a pod that wants none."""
    snapshot = cluster({"n": 4}, [pod("a", wants=1, has=[0], node="n")], {"n": facts(**fields)})
    for wants in (None, 0, 1):
        assert filter_nodes(snapshot, new("me", wants=wants), ["n"]) == FilterResult((), {"n": why}, {})


def test_ended_pods_need_no_slot() -> None:
    """Pods that ended take no slot, though their GPUs may still be held."""
    snapshot = cluster({"n": 4}, [pod("a", has=[0], gone=True, node="n")], {"n": facts(1)})
    assert filter_nodes(snapshot, new("me", wants=1), ["n"]).fitting == ("n",)


def test_unknown_node_may_serve_later() -> None:
    """A node without an inventory serves nothing now, and is not ruled out."""
    found = ask({}, [], {"wants": 1})
    assert found == FilterResult(())
    found = filter_nodes(cluster({}), new("me"), ["n"])
    assert found.failed == {"n": "the GPUs of the node are not known: no node plugin has reported them"}


def test_nodes_are_sorted_into_three_groups_in_the_order_asked() -> None:
    """Nodes are sorted into those that fit, those that may later and those that never can."""
    found = ask({"c": 2, "a": 4, "b": 2, "d": 1}, [pod("x", wants=1, has=[20], node="b")], {"wants": 2})
    assert found == FilterResult(("c", "a"), {"b": "only 1 of 2 GPUs is free, 2 wanted"}, {"d": "only 1 GPU, 2 wanted"})


def test_pod_without_a_wish_fits_wherever_a_slot_is() -> None:
    """The pod fits even where no GPU is free, or none works now."""
    nodes = {"a": inventory(1, unhealthy=[0]), "b": inventory(1)}
    assert ask(nodes, [pod("x", wants=1, has=[10], node="b")], {}).fitting == ("a", "b")


def test_bad_wish_is_refused_everywhere_with_its_reason() -> None:
    """A wish that can't be read, and one beyond the user's limit, fit on no node."""
    snapshot = cluster({"a": 4, "b": 4})
    found = filter_nodes(snapshot, replace(new("me"), fault="requested can't be read."), ["a", "b"])
    assert found == FilterResult((), {}, dict.fromkeys("ab", "requested can't be read."))
    found = filter_nodes(snapshot, new("me", wants=2, limit=1), ["a"])
    assert found.never["a"].startswith("Your server's limit is 1 GPU,")
    assert filter_nodes(snapshot, new("me", wants=1, limit=1), ["a"]).fitting == ("a",)


@pytest.mark.parametrize(
    ("mine", "theirs", "fits"),
    [
        ({}, {}, False),
        ({"ticket": 1}, {}, True),
        ({"ticket": 3}, {}, False),
        ({"priority": 1}, {}, True),
        ({"ticket": 1}, {"priority": 1}, False),
    ],
)
@pytest.mark.parametrize("running", [True, False])
def test_new_pods_and_resizes_stand_in_one_line(
    mine: dict[str, Any], theirs: dict[str, Any], fits: bool, running: bool
) -> None:
    """One GPU is free: the pod with the higher priority gets it, then the one with the lower ticket."""
    other = (
        pod("z", wants=2, has=[0], ticket=2, node="n", **theirs)
        if running
        else new("z", wants=2, ticket=2, on="n", **theirs)
    )
    filler = [] if running else [pod("x", wants=1, has=[0], node="n")]
    snapshot = cluster({"n": 2}, [other, *filler])
    assert filter_nodes(snapshot, new("me", wants=1, **mine), ["n"]).fitting == (("n",) if fits else ())


def test_gpu_owed_to_another_pod_is_not_free() -> None:
    """GPU 1 is about to be given back and GPU 0 is owed to a waiting pod: a new pod can't be bound with either now."""
    pods = [pod("r", wants=0, has=[1], attaches=[], node="n"), pod("y", wants=1, ticket=1, node="n")]
    found = filter_nodes(cluster({"n": 2}, pods), new("me", wants=1), ["n"])
    assert found.failed == {"n": "what is free is kept for who came first (1 of 2 GPUs is free)"}


def test_pod_that_lacks_something_else_keeps_no_gpu_back() -> None:
    """A pod that lacks CPU does not block the GPUs of its node."""
    snapshot = cluster({"n": 2}, [new("z", wants=2, ticket=2, on="n", blocked=True)])
    assert filter_nodes(snapshot, new("me", wants=1), ["n"]).fitting == ("n",)


def test_gpu_that_the_first_cannot_use_is_free_for_others() -> None:
    """Only GPUs that could serve a waiting pod are kept back for it."""
    gpus = inventory(2, models=[A100, H100])
    snapshot = cluster({"n": gpus}, [new("z", wants=2, model=("A100",), ticket=2, on="n")])
    assert filter_nodes(snapshot, new("me", wants=1, model=("H100",)), ["n"]).fitting == ("n",)


def test_older_resize_without_a_ticket_comes_first() -> None:
    """If neither a resize nor a new pod has a ticket yet, age decides, even if a GPU has just vanished."""
    grows = replace(pod("z", wants=2, has=[0], node="n"), created=1.0)
    late = new("me", wants=1, created=2.0)
    decided = replace(grows, allocated=replace(grows.allocated, observed_generation=0) if grows.allocated else None)
    assert not filter_nodes(cluster({"n": 2}, [decided]), late, ["n"]).fitting
    assert filter_nodes(cluster({"n": 2}, [decided]), replace(late, created=0.5), ["n"]).fitting
    lost = replace(pod("z", wants=1, has=[7], node="n"), created=1.0)
    assert not filter_nodes(cluster({"n": 1}, [lost]), late, ["n"]).fitting


def test_equal_questions_are_answered_once_and_changes_are_seen() -> None:
    """Answers are kept until something on that node changes: pods, GPUs, health, facts, nominations."""
    snapshot = cluster({"n": 2, "m": 2})
    me = new("me", wants=2)

    def fits(snapshot: ClusterSnapshot = snapshot) -> tuple[str, ...]:
        return filter_nodes(snapshot, me, ["n", "m"]).fitting

    assert fits() == ("n", "m")
    snapshot.put_pod(pod("a", wants=1, has=[0], node="n"))
    assert fits() == ("m",)
    snapshot.put_pod(replace(pod("a", wants=0, has=[], node="n"), attached=attached()))
    assert fits() == ("n", "m")
    snapshot.put_node("m", inventory(2, unhealthy=[1]), facts())
    assert fits() == ("n",)
    snapshot.put_node("m", inventory(2)[:0], facts())
    snapshot.put_pod(new("b", wants=1, priority=1, ticket=1, on="n"))
    assert fits() == ()
    snapshot.remove_pod("b")
    assert fits() == ("n",)
    snapshot.put_node("n", snapshot.gpus("n") or (), facts(schedulable=False))
    assert fits() == ()
    snapshot.remove_node("n")
    assert filter_nodes(snapshot, me, ["n"]).failed["n"].startswith("the GPUs of the node are not known")


def test_node_must_be_open_and_match_the_selector() -> None:
    """A node is acceptable if it is open, has the labels of the pod's selector and what it asks for beside GPUs."""
    me = new("me", selector={"gpu": "h100"}, asks={"cpu": 2000, "memory": 5})
    assert acceptable(me, NodeFacts(labels={"gpu": "h100", "zone": "a"}))
    assert not acceptable(me, NodeFacts(labels={"gpu": "a100"}))
    assert not acceptable(me, NodeFacts(labels={"gpu": "h100"}, schedulable=False))
    assert has_resources(me, NodeFacts())
    assert has_resources(me, NodeFacts(allocatable={"cpu": 4000}, used={"cpu": 2000}))
    assert not has_resources(me, NodeFacts(allocatable={"cpu": 4000}, used={"cpu": 2001}))


def test_node_without_gpus_takes_no_pod_with_a_slot() -> None:
    """Neither a node that reports no GPUs nor a silent one takes such a pod, whatever slots it has; others may go
    there.
    """
    snapshot = cluster({"none": 0, "some": 1})
    names = ["none", "some", "silent"]
    silent = "the GPUs of the node are not known: no node plugin has reported them"
    for me in (new("me"), new("me", wants=0), new("me", wants=1)):
        assert filter_nodes(snapshot, me, names) == FilterResult(
            ("some",), {"silent": silent}, {"none": "the node has no GPU"}
        )
    assert filter_nodes(snapshot, new("me", slots=0), names).fitting == ("none", "some")
    snapshot.put_node("none", inventory(1), facts())
    assert filter_nodes(snapshot, new("me"), names).fitting == ("none", "some"), "its driver came up"


def test_no_pod_is_bound_to_a_node_that_lost_its_gpus() -> None:
    """A node that lost its GPUs between the question and the Binding gets no pod."""
    snapshot = cluster({"n": 0})
    refused = allocate(snapshot, new("me"), "n")
    assert isinstance(refused, Infeasible)
    assert "the node has no GPU" in refused.message


def test_pod_without_a_wish_keeps_off_nodes_without_gpus() -> None:
    """Also if its user may have some GPUs of a model only."""
    asking = replace(new("me"), model_allowances=(("kept off", 1000),))
    assert filter_nodes(cluster({"n": 0}), asking, ["n"]).never == {"n": "the node has no GPU"}
