"""The owners of pods: read from annotations, and indexed with what they hold."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Reason
from jupyter_gpu.model.limits.owner import HUB, USERNAME, Owner
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import read_pod, trim_pod
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import allocated, new, pod

ANN, BOB = Owner("User", "ann", "hub"), Owner("User", "bob", "hub")


def _pod(annotations: dict[str, Any], phase: str = "Running") -> dict[str, Any]:
    return {
        "metadata": {"uid": "u", "name": "p", "namespace": "lab", "annotations": annotations},
        "spec": {"nodeName": "n", "containers": [{"resources": {"limits": {"jupyter-gpu.io/slot": "1"}}}]},
        "status": {"phase": phase},
    }


@pytest.mark.parametrize(
    ("annotations", "owner"),
    [
        ({USERNAME: "ann"}, Owner("User", "ann", "lab")),
        ({USERNAME: "ünï/b", HUB: "jhub"}, Owner("User", "ünï/b", "jhub")),
        ({HUB: "jhub"}, Owner("Namespace", "lab")),
        ({USERNAME: 7}, Owner("Namespace", "lab")),
    ],
)
def test_owner_is_read_from_the_annotations_and_kept_when_trimmed(annotations: dict[str, Any], owner: Owner) -> None:
    """The user of a hub, else the namespace; a trimmed pod has the same owner."""
    found = _pod(annotations)
    assert read_pod(found).state.owner == read_pod(trim_pod(found)).state.owner == owner


steps = st.tuples(
    st.sampled_from("abcd"),
    st.sampled_from([ANN, BOB]),
    st.sampled_from(["", "n", "m"]),
    st.lists(st.integers(0, 3), unique=True),
    st.booleans(),
)


@given(st.lists(steps, max_size=25))
def test_owners_agree_with_a_scan_of_all_pods(steps: list[tuple[str, Owner, str, list[int], bool]]) -> None:
    """Each owner's pods and the sum of what they hold are those of all pods; owners without pods are forgotten."""
    snapshot = ClusterSnapshot()
    for uid, owner, node, has, stays in steps:
        if stays:
            snapshot.put_pod(replace(pod(uid, wants=2, has=has, draining=[9]), owner=owner, node=node))
        else:
            snapshot.remove_pod(uid)
        pods = [state for uid in "abcd" if (state := snapshot.pod(uid))]
        assert set(snapshot.owners()) == {state.owner for state in pods}
        for one in (ANN, BOB):
            own = tuple(state for state in pods if state.owner == one)
            assert snapshot.owned(one) == own
            assert snapshot.holds(one) == sum(sum(state.held.values()) for state in own)
            assert snapshot.claims(one) == sum(max(state.holds, state.wished) for state in own)
            assert snapshot.unserved(one) == tuple(state for state in own if state.wished > state.has)


def test_served_wish_is_cut_by_the_allowance() -> None:
    """The wish that is served, its kind and whether it is cut follow the allowance; the user's wish stays as it is."""
    free, bound = new("a", wants=3), replace(new("a", wants=3), allowance=2000)
    assert (free.wish, free.cut) == (free.requested and free.requested.wish, False)
    assert bound.wish is not None
    assert (bound.wish.milli, bound.cut) == (2000, True)
    assert bound.requested == free.requested
    assert bound.kind != free.kind
    assert bound.kind == new("b", wants=2).kind, "equal pods are reviewed together"
    assert replace(free, allowance=3000).kind == free.kind
    assert (PodState("a").wish, PodState("a", allowance=0).cut) == (None, False)


def test_raised_allowance_makes_a_pod_wait() -> None:
    """A pod that was held up by its limit waits again from the moment that its allowance permits more."""
    limited = allocated({0: 1000}, reason=Reason.LIMIT_EXCEEDED)
    bound = replace(pod("a", wants=2), allocated=limited, allowance=1000)
    assert not bound.waits
    assert replace(bound, allowance=2000).waits
    assert not replace(bound, allowance=2000, gone=True).waits


def test_milli_that_a_pod_has() -> None:
    """It has what is allocated, unless it is pending or has finished; what it only holds still is not counted."""
    assert replace(pod("a", wants=1, has=[0, 1], draining=[2])).has == 2000
    assert replace(pod("a", wants=1, has=[0]), finished=True).has == 0
    assert new("a", wants=1, ticket=1).has == pod("a").has == 0
