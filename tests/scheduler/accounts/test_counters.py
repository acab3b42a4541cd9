"""Counters of users: exact at each change, bounded in number, named as the settings say."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.accounts.counters import (
    OTHERS,
    RESTED,
    Counters,
    Names,
    Series,
    rates,
    username,
)
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

ANN = Owner("User", "ann", "hub")
MODELS = {"g0": "A100", "g1": "A100", "g2": "H100"}
KNOWN = ("A100", "H100")
SECOND = 10**9


def series(counted: Any, model: str = "A100", kind: Any = "owned", user: str = "ann") -> Series:
    """Return a series of ann's pod."""
    return Series(counted, "ns", user, model, kind)


def shares(**milli: int) -> tuple[GpuShare, ...]:
    """Return shares by uuid."""
    return tuple(GpuShare(uuid, amount) for uuid, amount in milli.items())


def pod(has: tuple[GpuShare, ...] = (), **fields: Any) -> PodState:
    """Return a pod of ann with these shares, attached, each of them open."""
    attached = Attached(1, has, open=tuple(share.uuid for share in has))
    state = PodState("p", "n0", namespace="ns", owner=ANN, allocated=Allocated(1, has), attached=attached)
    return replace(state, **fields)


def rates_of(state: PodState) -> dict[Series, int]:
    """Return the rates of a pod, in milli."""
    return rates(state, MODELS, KNOWN, "names")


def test_held_by_model_and_kind() -> None:
    """Whole GPUs and parts of GPUs of each model are counted apart, also while they drain; others have no model."""
    found = rates_of(pod(shares(g0=1000, g1=500, g2=1000, gone=1000)))
    assert found == {
        series("held"): 1000,
        series("held", kind="share"): 500,
        series("held", "H100"): 1000,
        series("held", ""): 1000,
    }
    drains = Attached(1, draining=(DrainingShare("g0", 1000),))
    assert rates_of(pod(attached=drains)) == {series("held"): 1000}


def test_gpu_that_does_nothing_is_idle() -> None:
    """One that no process has open, or that rests; not one that is not attached yet, or whose pod ends."""
    has = shares(g0=1000, g2=1000)
    one, rests = Attached(1, has, open=("g2",)), Attached(1, has, open=("g0", "g2"), rests=("g0",))
    for attached in (one, rests):
        assert rates_of(pod(has, attached=attached))[series("idle")] == 1000
        assert series("idle", "H100") not in rates_of(pod(has, attached=attached))
    for other in (pod(has), pod(has, attached=None), pod(has, attached=one, gone=True), pod(has, allocated=None)):
        assert not any(found.counted == "idle" for found in rates_of(other))
    assert series("idle") not in rates_of(pod(shares(g2=1000), attached=Attached(1, shares(g0=1000))))


def test_pod_in_line_waits() -> None:
    """A second counts as one, however much it waits for; without a ticket, or at its end, it does not wait."""
    in_line = Allocated(1, ticket=3)
    waiting = pod(allocated=in_line, requested=Requested(1, Wish(2000)))
    assert rates_of(waiting) == {series("waiting", ""): 1000}
    small = Requested(1, Wish(500, model=("A100",)))
    assert rates_of(replace(waiting, requested=small)) == {series("waiting", kind="share"): 1000}
    assert rates_of(replace(waiting, allocated=Allocated(1))) == {}
    assert rates_of(replace(waiting, gone=True)) == {}


def test_words_of_a_wish_are_no_label() -> None:
    """A model that no node has, or that leaves several, is not named: users could make any number of series."""
    for words in (("invented",), ("A100", "H100"), ()):
        waiting = pod(allocated=Allocated(1, ticket=3), requested=Requested(1, Wish(1000, model=words)))
        assert rates_of(waiting) == {series("waiting", ""): 1000}


def test_names_are_hidden_if_the_settings_say_so() -> None:
    """A hash tells two hubs' ann apart, and is the same in each process; a namespace is no user."""
    assert username(ANN, "names") == "ann"
    assert username(ANN, "none") == ""
    hashed = username(ANN, "hashed")
    assert len(hashed) == 16
    assert hashed == username(Owner("User", "ann", "hub"), "hashed") != username(Owner("User", "ann", "lab"), "hashed")
    assert "ann" not in hashed
    assert {username(Owner("Namespace", "jobs"), names) for names in get_args(Names)} == {""}


amounts = st.dictionaries(
    st.sampled_from([series("held"), series("idle"), series("held", "H100")]), st.integers(1, 4000)
)
steps = st.lists(st.tuples(st.integers(0, 10**12), st.sampled_from("abc"), amounts), max_size=30)


@given(steps, st.integers(0, 10**12))
def test_counters_are_the_integral_of_the_rates(history: list[tuple[int, str, dict[Series, int]]], rest: int) -> None:
    """Over any history, each series is the sum over all moments of what all pods held, exactly."""
    counters, now = Counters(), 0
    holds: dict[str, dict[Series, int]] = {}
    integral: dict[Series, int] = {}
    for pause, uid, found in [*history, (rest, "", {})]:
        for one in holds.values():
            for key, milli in one.items():
                integral[key] = integral.get(key, 0) + milli * pause
        now += pause
        if uid:
            holds[uid] = found
            counters.put(uid, found, now)
    values = dict(counters.values(now))
    assert {key: value for key, value in values.items() if value} == {
        key: milli / 10**12 for key, milli in integral.items() if milli
    }


@given(steps)
def test_no_counter_ever_falls(history: list[tuple[int, str, dict[Series, int]]]) -> None:
    """Whatever pods do, also where the clock stands still, a counter only grows."""
    counters, before, moment = Counters(), dict[Series, float](), 0
    for pause, uid, found in history:
        moment += pause
        counters.put(uid, found, moment)
        values = dict(counters.values(moment))
        assert all(values[key] >= value for key, value in before.items())
        before = values


def test_users_for_whom_there_is_no_room_are_counted_together() -> None:
    """The number of series is bounded; what no series of its own has is not lost."""
    counters = Counters(most=2)
    for number, uid in enumerate("abcd"):
        counters.put(uid, {series("held", user=uid): 1000}, number * SECOND)
    assert dict(counters.values(4 * SECOND)) == {
        series("held", user="a"): 4.0,
        series("held", user="b"): 3.0,
        Series("held", "", OTHERS, "A100", "owned"): 2.0 + 1.0,
    }
    counters.put("c", {}, 4 * SECOND)
    counters.put("d", {}, 4 * SECOND)
    assert dict(counters.values(9 * SECOND))[Series("held", "", OTHERS, "A100", "owned")] == 3.0


def test_same_rates_again_change_nothing() -> None:
    """A pod that holds what it held goes on counting, and once."""
    counters = Counters()
    counters.put("a", {series("held"): 1000}, 0)
    counters.put("a", {series("held"): 1000}, SECOND)
    assert dict(counters.values(3 * SECOND)) == {series("held"): 3.0}


def test_series_that_has_rested_makes_room() -> None:
    """A user who was away for long is forgotten for another, and one who is there is not."""
    counters = Counters(most=2)
    counters.put("a", {series("held", user="a"): 1000}, 0)
    counters.put("b", {series("held", user="b"): 1000}, 0)
    counters.put("b", {}, SECOND)
    counters.put("c", {series("held", user="c"): 1000}, SECOND + RESTED)
    assert {found.username for found, _ in counters.values(SECOND + RESTED)} == {"a", "c"}
