"""The division of an owner's maximum among pods: one small case for each rule, and what holds for all."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_scheduler.rules.limits.allowances import allowances, ends_of_sliders
from jupyter_gpu_scheduler.rules.limits.claims import claims
from jupyter_gpu_scheduler.rules.limits.giving_back import excess, losses
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import allocated, new, pod


def _old(state: PodState, created: float) -> PodState:
    return replace(state, created=created)


DIVIDED: dict[str, tuple[list[PodState], int, dict[str, int]]] = {
    "a wish within the maximum": ([pod("a", wants=1)], 2000, {"a": 1000}),
    "a wish above it": ([pod("a", wants=3)], 2000, {"a": 2000}),
    "nothing": ([pod("a", wants=3)], 0, {"a": 0}),
    "what others have is not there": ([pod("a", wants=2, has=[0, 1]), pod("b", wants=2)], 3000, {"a": 2000, "b": 1000}),
    "the next in line first": (
        [pod("a", wants=2, has=[], ticket=2), pod("b", wants=2, has=[], ticket=1)],
        3000,
        {"a": 1000, "b": 2000},
    ),
    "older pods first where none is in line": (
        [_old(new("a", wants=2), 2), _old(new("b", wants=2), 1)],
        3000,
        {"a": 1000, "b": 2000},
    ),
    "what drains counts for the pod that holds it": (
        [pod("a", wants=0, has=[], draining=[0]), pod("b", wants=2)],
        2000,
        {"a": 0, "b": 1000},
    ),
    "a pod may have back what it is closing": (
        [pod("a", wants=2, has=[0], draining=[1]), pod("b", wants=2)],
        2000,
        {"a": 2000, "b": 0},
    ),
    "not if that is above the maximum": (
        [pod("a", wants=2, has=[0], draining=[1])],
        1000,
        {"a": 1000},
    ),
    "nor for two pods that close more than the maximum": (
        [pod("a", wants=1, has=[], draining=[0]), pod("b", wants=1, has=[], draining=[1])],
        1000,
        {"a": 1000, "b": 0},
    ),
    "what a pod that ends has still counts": (
        [pod("a", wants=2, has=[0, 1], gone=True), pod("b", wants=2)],
        3000,
        {"a": 2000, "b": 1000},
    ),
    "a pod whose wish can't be read keeps what it has": (
        [replace(pod("a", wants=3, has=[0]), fault="It can't be read."), pod("b", wants=2)],
        2000,
        {"a": 1000, "b": 1000},
    ),
    "a pod without a wish": ([pod("a"), pod("b", wants=2)], 2000, {"a": 0, "b": 2000}),
    "more than the maximum: idle GPUs are given back first": (
        [pod("a", wants=1, has=[0]), _old(pod("b", wants=1, has=[1], busy=[1]), 9)],
        1000,
        {"a": 0, "b": 1000},
    ),
    "then those that are open and rest": (
        [pod("a", wants=1, has=[0], busy=[0], resting=[0]), _old(pod("b", wants=1, has=[1], busy=[1]), 9)],
        1000,
        {"a": 0, "b": 1000},
    ),
    "then the newest": (
        [pod("a", wants=2, has=[0, 1], busy=[0, 1]), _old(pod("b", wants=2, has=[2, 3], busy=[2, 3]), 9)],
        1500,
        {"a": 1500, "b": 0},
    ),
    "what ends is given back already": (
        [pod("a", wants=1, has=[0], gone=True), pod("b", wants=1, has=[1])],
        1000,
        {"a": 1000, "b": 1000},
    ),
    "while they have more, nobody gets anything": (
        [pod("a", wants=0, has=[0]), pod("b", wants=2, has=[1]), pod("c", wants=1)],
        1000,
        {"a": 0, "b": 1000, "c": 0},
    ),
}


@pytest.mark.parametrize("name", DIVIDED)
def test_division(name: str) -> None:
    """The maximum is divided as the rules say."""
    pods, maximum, expected = DIVIDED[name]
    assert allowances(claims(pods), maximum) == expected


def test_pods_that_come_last() -> None:
    """A pod that could use nothing more gets what the others leave, whatever its place in line."""
    pods = [pod("a", wants=3, has=[], ticket=1), pod("b", wants=2)]
    assert allowances(claims(pods, last=["a"]), 3000) == {"a": 1000, "b": 2000}


def test_tolerated_excess_stays() -> None:
    """During the grace each pod keeps what it has, and none gets more."""
    pods = [pod("a", wants=1, has=[0, 1]), pod("b", wants=3, has=[2])]
    assert allowances(claims(pods), 1000, tolerated=True) == {"a": 2000, "b": 1000}


def test_amounts_that_a_pod_cannot_use_go_to_the_next() -> None:
    """A pod that takes whole GPUs only leaves the half to the pod behind it."""
    found = claims([pod("a", wants=2, has=[], ticket=1), pod("b", wants=1)])
    usable = {"a": lambda milli: milli - milli % 1000, "b": lambda milli: milli}
    assert allowances(found, 1500, usable=lambda uid, milli: usable[uid](milli)) == {"a": 1000, "b": 500}


def test_end_of_the_slider() -> None:
    """It is the maximum less what the other pods hold, draining included; never below nothing."""
    pods = [pod("a", wants=1, has=[0]), pod("b", wants=0, has=[], draining=[1]), new("c", wants=1)]
    assert ends_of_sliders(claims(pods), 3000) == {"a": 2000, "b": 2000, "c": 1000}
    assert ends_of_sliders(claims(pods), 1000) == {"a": 0, "b": 0, "c": 0}


def test_losses_take_the_newest_share_of_a_pod() -> None:
    """One pod's closed shares go first, then resting ones, then the newest; a share may be given back in part."""
    found = claims([pod("a", wants=3, has={0: 1000, 1: 500, 2: 1000}, busy=[0, 2])])
    assert excess(found, 1000) == 1500
    assert [losses(found, amount) for amount in (300, 700)] == [{"a": 300}, {"a": 700}]
    two = claims([pod("a", wants=1, has=[0], busy=[0]), pod("b", wants=2, has=[1, 2], busy=[1])])
    assert losses(two, 1500) == {"b": 1000, "a": 500}
    rests = claims([pod("a", wants=1, has=[0], busy=[0], resting=[0]), pod("b", wants=2, has=[1, 2], busy=[1, 2])])
    assert losses(rests, 1500) == {"a": 1000, "b": 500}


@st.composite
def pods_of_one_owner(draw: st.DrawFn) -> list[PodState]:
    """Return some pods with shares, wishes, draining GPUs and tickets of all kinds."""
    found = []
    for number, uid in enumerate("abc"):
        gpus = st.lists(st.integers(number * 4, number * 4 + 3), unique=True, max_size=3)
        has = {index: draw(st.sampled_from([300, 500, 1000])) for index in draw(gpus)}
        fields: dict[str, Any] = {"wants": draw(st.none() | st.sampled_from([0, 0.5, 1, 1.5, 2, 3]))}
        fields |= {"draining": draw(gpus), "busy": draw(gpus), "resting": draw(gpus), "gone": draw(st.booleans())}
        state = pod(uid, has=has, ticket=draw(st.none() | st.integers(1, 3)), **fields)
        pending = draw(st.booleans()) and not fields["gone"]
        found.append(replace(state, node="", attached=None, allocated=allocated(ticket=1)) if pending else state)
    return found


@given(pods_of_one_owner(), st.sampled_from([0, 300, 1000, 1500, 2000, 4000, 9000]), st.booleans())
def test_division_obeys_the_rules(pods: list[PodState], maximum: int, tolerated: bool) -> None:
    """It never exceeds the maximum, takes only what is above it, wastes nothing, and changes nothing when repeated."""
    found = allowances(claims(pods), maximum, tolerated=tolerated)
    alive = [one for one in pods if not one.gone]
    has = sum(one.has for one in alive)
    together = sum(found[one.uid] for one in alive)
    if has > maximum:
        assert together == (has if tolerated else maximum)
        assert all(found[one.uid] <= one.has for one in alive)
        return
    assert together <= maximum
    assert all(found[one.uid] >= one.has for one in pods)
    held = sum(sum(one.held.values()) for one in pods)
    grown = sum(max(0, found[one.uid] - max(one.has, sum(one.held.values()))) for one in alive)
    assert held + grown <= max(held, maximum), "what drains is not given away"
    unserved = [one for one in alive if one.requested and found[one.uid] < one.requested.milli]
    assert not unserved or held + grown >= maximum or together == maximum, "something is left, and a pod wants it"
