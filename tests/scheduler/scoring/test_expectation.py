"""Pods without a wish go where they can expect the most later, and wishes leave something to the pods already there."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.scoring.expectation import expectation
from jupyter_gpu_scheduler.rules.scoring.policy import PRESETS, Policy
from jupyter_gpu_scheduler.rules.scoring.score import best, prioritize
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, apply, attached, cluster, inventory, new, pod, requested

ONE_EACH = Policy.from_settings({"workload": [{"share": 1, "gpus": 1}]})


def place(snapshot: ClusterSnapshot, me: PodState, policy: Policy) -> str:
    """Place a pod as kube-scheduler does: filter, prioritize, bind to the last by name of the best."""
    fitting = filter_nodes(snapshot, me, list(snapshot.nodes())).fitting
    scores = prioritize(snapshot, me, fitting, policy)
    node = max(fitting, key=lambda name: (scores[name], name))
    granted = allocate(snapshot, me, node)
    assert isinstance(granted, Allocated)
    snapshot.put_pod(replace(me, node=node, allocated=granted, attached=attached()))
    return node


def served(snapshot: ClusterSnapshot, uid: str, wants: object = 1) -> bool:
    """Whether a pod that is there and wishes now has all of it at once."""
    state = snapshot.pod(uid)
    assert state
    snapshot.put_pod(replace(state, requested=requested(wants, 1)))
    apply(snapshot, decide(snapshot, state.node))
    after = snapshot.pod(uid)
    return bool(after and after.allocated and sum(share.milli for share in after.allocated.shares) == 1000)


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_pods_that_start_without_a_wish_can_have_one_later(policy: str) -> None:
    """32 notebooks on 4 equal nodes of 8 GPUs: 8 on each, and each has a GPU as soon as it wants one."""
    snapshot = cluster(dict.fromkeys("abcd", 8))
    rules = Policy.from_settings({"name": policy})
    places = Counter(place(snapshot, new(f"pod-{number}"), rules) for number in range(32))
    assert places == dict.fromkeys("abcd", 8)
    assert sum(served(snapshot, f"pod-{number}") for number in range(32)) == 32


@pytest.mark.parametrize("policy", sorted(PRESETS))
def test_pod_without_a_wish_goes_where_its_part_is_larger(policy: str) -> None:
    """The free GPUs of each pod count: a large node with many notebooks offers less than a small one."""
    crowd = [pod(f"p{number}", wants=0, has=[], node="large") for number in range(8)]
    snapshot = cluster({"large": 8, "small": 2}, crowd)
    assert place(snapshot, new("me"), Policy.from_settings({"name": policy})) == "small"


def test_pods_on_their_way_count() -> None:
    """kube-scheduler asks for the next before the last is bound; one that may go to either of two counts half."""
    snapshot = cluster({"a": 4, "b": 3, "c": 3})
    me, rules = new("me"), Policy()
    assert prioritize(snapshot, me, list("abc"), rules)["a"] == 10
    scores = prioritize(snapshot, me, list("abc"), rules, {"a": 1.0, "b": 0.5})
    assert max(scores, key=lambda name: scores[name]) == "c"
    assert prioritize(snapshot, new("late", wants=4), list("abc"), rules, {"a": 9.0}) == {"a": 10, "b": 0, "c": 0}
    assert prioritize(snapshot, me, list("abc"), rules)["a"] == 10, "that was said of this question alone"


def expected(gpus: Any, *pods: PodState, policy: Policy = ONE_EACH, **fields: Any) -> tuple[int, float]:
    """Return the supply on the node and the demand of the other pods."""
    snapshot = cluster({"n": gpus}, pods)
    me = new("me", wants=0, **fields)
    found = expectation(snapshot, "n", policy, me.requested.wish if me.requested else None)
    return found.supply, found.demand


def test_gpus_that_are_being_closed_count() -> None:
    """GPUs that are being closed count as free; broken or kept ones do not."""
    assert expected(4) == (4000, 0)
    assert expected(inventory(4, unhealthy=[0])) == (3000, 0)
    assert expected(4, pod("a", wants=2, has=[0, 1], node="n")) == (2000, 0)
    assert expected(4, pod("a", wants=0, has=[], draining=[0, 1], node="n")) == (4000, 1000)
    assert expected(4, pod("a", wants=1, has=[0], node="n", gone=True)) == (4000, 0)
    assert expected(2, pod("a", wants=0.5, has={0: 500}, node="n")) == (1500, 500)
    assert expected(0) == (0, 0)
    assert expected(inventory(4, unhealthy=[0]), pod("a", wants=1, has=[0], node="n")) == (3000, 0)
    assert expected(2, replace(pod("a", wants=1, has=[0], node="n"), allocated=None)) == (1000, 0), (
        "it holds what is attached"
    )


def test_pods_that_may_grow_count_by_their_shortfall() -> None:
    """A pod without GPUs wants what is typical, one that has some wants less, one at its limit wants nothing."""
    assert expected(4, pod("a", node="n"), pod("b", wants=0, has=[], node="n")) == (4000, 2000)
    assert expected(4, pod("a", wants=2, has=[0, 1], node="n")) == (2000, 0)
    assert expected(4, pod("a", node="n", limit=0.5)) == (4000, 500)
    assert expected(4, pod("a", node="n", limit=0)) == (4000, 0)
    assert expected(4, pod("a", node="n", gone=True)) == (4000, 0)
    mixed = Policy.from_settings({"workload": [{"share": 1, "gpus": 1}, {"share": 3, "gpus": 3}, {"share": 9}]})
    assert expected(4, pod("a", node="n"), policy=mixed) == (4000, 2500)
    assert expected(4, pod("a", node="n"), policy=Policy.from_settings({"workload": [{"share": 1}]})) == (4000, 1000)


def test_pods_in_line_come_first() -> None:
    """GPUs owed to pods that wait there, running or new, are not to be expected."""
    assert expected(4, pod("a", wants=3, has=[0], ticket=1, node="n")) == (1000, 0)
    assert expected(4, new("a", wants=3, ticket=1, on="n")) == (1000, 0)
    assert expected(4, new("a", wants=3, ticket=1, on="n", blocked=True)) == (4000, 0)
    assert expected(1, new("a", wants=3, ticket=1, on="n")) == (0, 0)
    other = new("a", wants=2, model=("H100",), ticket=1, on="n")
    assert expected(4, other) == (4000, 0), "it waits for what is not here"
    assert expected(4, replace(pod("a", wants=2, has=[], node="n"), fault="It can't be read.")) == (4000, 1000)


def test_only_usable_gpus_are_counted() -> None:
    """A notebook that says which GPUs it will want is not sent to others."""
    mixed = inventory(4, models=["H100", "T4"], memory=[80, 16])
    assert expected(mixed) == (4000, 0)
    assert expected(mixed, model=("T4",)) == (2000, 0)
    assert expected(mixed, memory=40 * GIB) == (2000, 0)
    snapshot = cluster({"a": inventory(8, models=["T4"]), "b": inventory(2, models=["H100"])})
    assert best(snapshot, new("me", wants=0, model=("H100",)), ["a", "b"], Policy()) == "b"
    assert best(snapshot, new("me", wants=0), ["a", "b"], Policy()) == "a"


def test_preferred_models_count_more() -> None:
    """The preferred model wins among equal nodes; on a mixed node the free GPUs of each model count."""
    policy = Policy.from_settings({"models": {"H100": 10, "T4": 0}})
    snapshot = cluster({"a": inventory(2, models=["T4"]), "b": inventory(2, models=["H100"])})
    assert place(snapshot, new("me"), policy) == "b"
    mixed = cluster({"n": inventory(4, models=["H100", "T4"])}, [pod("x", wants=2, has=[0, 2], node="n")])
    assert expectation(mixed, "n", policy).preferred == 0
    assert expectation(cluster({"n": inventory(4, models=["H100", "T4"])}), "n", policy).preferred == 0.5


@pytest.mark.parametrize("policy", sorted(name for name in PRESETS if "left_for_others" in PRESETS[name]))
def test_wish_goes_where_no_other_pod_may_want_the_gpus(policy: str) -> None:
    """Among equal nodes a wish takes the one where no other pod may want the GPUs, by any policy that looks at them."""
    idle = [pod(f"p{number}", wants=0, has=[], node="b") for number in range(4)]
    snapshot = cluster({"a": 4, "b": 4}, idle)
    assert place(snapshot, new("me", wants=4), Policy.from_settings({"name": policy})) == "a"


def test_expectation_follows_changes_of_the_node() -> None:
    """A pod that comes, grows or goes changes what others can expect."""
    snapshot = cluster({"n": 4})
    assert expectation(snapshot, "n", ONE_EACH).demand == 0
    snapshot.put_pod(pod("a", wants=0, has=[], node="n"))
    assert expectation(snapshot, "n", ONE_EACH).demand == 1000
    snapshot.put_pod(pod("a", wants=1, has=[0], node="n"))
    assert (expectation(snapshot, "n", ONE_EACH).demand, expectation(snapshot, "n", ONE_EACH).supply) == (0, 3000)
    snapshot.remove_pod("a")
    assert expectation(snapshot, "n", ONE_EACH).supply == 4000


@pytest.mark.uncounted(after=25)
@given(
    gpus=st.lists(st.integers(1, 8), min_size=1, max_size=5),
    policy=st.sampled_from(sorted(PRESETS)),
    data=st.data(),
)
def test_no_pod_misses_a_gpu_while_another_node_has_one_to_spare(gpus: list[int], policy: str, data: Any) -> None:
    """As many notebooks as there are GPUs, on nodes of any sizes: each has one when it wants one."""
    snapshot = cluster({f"n{number}": count for number, count in enumerate(gpus)})
    rules = Policy.from_settings({"name": policy})
    for number in range(sum(gpus)):
        place(snapshot, new(f"pod-{number}"), rules)
    for number in data.draw(st.permutations(range(sum(gpus)))):
        assert served(snapshot, f"pod-{number}")
