"""On a divided GPU no share counts on memory that another one has, and what does not fit yet waits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.demand import booked
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.rules.holdings import Holding, permitted
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse, is_divided, kept, limits

A = "GPU-a"
ALL = 80
"""Memory of the GPU, in any unit."""
BIG = GpuShare(A, 250, 60)


def holding(
    name: str, milli: int = 0, memory: int = 0, *, drains: GpuShare | None = None, known: bool = True
) -> Holding:
    """Return the holding of a pod with one share of the GPU, or none."""
    has = {A: milli} if milli else {}
    draining = {A: drains.milli} if drains else {}
    bytes_of = {A: memory} if memory else {}
    leaving = {A: drains.memory} if drains and drains.memory else {}
    return Holding(("2026", name), has, draining, known, frozenset(has), bytes_of, leaving)


def grant(share: GpuShare, own: Holding, *others: Holding, **used: int) -> tuple[GpuShare, ...]:
    """Return what may be open of ``share`` on a divided GPU of which ``others`` use so much."""
    return permitted((share,), own, others, {A}, divided={A: MemoryUse(ALL, used)})


@pytest.mark.parametrize(
    ("shares", "divided"),
    [
        ([GpuShare(A, 250)], False),
        ([GpuShare(A, 250, 20)], False),
        ([GpuShare(A, 250, 21)], True),
        ([GpuShare(A, 250, 10), GpuShare(A, 1, 40)], True),
        ([GpuShare(A, 1000)], False),
        ([GpuShare(A, 1000, 60)], False),
        ([GpuShare(A, 1000, 60), GpuShare(A, 0, 20)], True),
        ([], False),
    ],
)
def test_a_share_with_more_than_its_part_divides_the_memory(shares: list[GpuShare], divided: bool) -> None:
    """A whole GPU has all of it anyway, or leaves some to a guest."""
    assert is_divided(ALL, shares) == divided


def test_a_share_waits_until_others_leave_room() -> None:
    """Memory that they hold counts, and memory that they may still take."""
    other = holding("x", 250)
    assert grant(BIG, holding("me"), other, x=20) == (BIG,)
    assert grant(BIG, holding("me"), other, x=0) == (BIG,)
    assert grant(BIG, holding("me"), other, x=21) == ()
    assert grant(BIG._replace(memory=61), holding("me"), other, x=0) == ()


def test_a_plain_share_waits_as_well() -> None:
    """Its part must be free beside what another share was given beyond its own."""
    assert grant(GpuShare(A, 500), holding("me"), holding("x", 250, 41), x=0) == ()
    assert grant(GpuShare(A, 500), holding("me"), holding("x", 250, 40), x=41) == ()
    assert grant(GpuShare(A, 500), holding("me"), holding("x", 250, 40), x=40) == (GpuShare(A, 500),)


def test_what_a_pod_holds_must_be_known() -> None:
    """A pod without the gate, or one that may have anything, leaves no room."""
    assert grant(BIG, holding("me"), holding("x", 250)) == ()
    assert grant(BIG, holding("me", 250), holding("x", 0, known=False)) == (GpuShare(A, 250),)
    assert grant(BIG, holding("me"), holding("x")) == (BIG,)


def test_draining_memory_counts_until_it_is_closed() -> None:
    """All that was recorded of it, whatever its programs use now."""
    leaving = holding("x", drains=GpuShare(A, 250, 40))
    assert grant(BIG, holding("me"), leaving, x=0) == ()
    assert grant(BIG._replace(memory=40), holding("me"), leaving, x=0) == (BIG._replace(memory=40),)


def test_a_share_that_grows_stays_as_it_is_meanwhile() -> None:
    """Its programs go on; of time it gives back at once what it has no more."""
    other = holding("x", 250)
    assert grant(BIG, holding("me", 250), other, x=30) == (GpuShare(A, 250),)
    assert grant(BIG, holding("me", 250, 30), other, x=30) == (GpuShare(A, 250, 30),)
    assert grant(BIG, holding("me", 500), other, x=30) == (GpuShare(A, 250, 40),)
    assert grant(BIG._replace(milli=500), holding("me", 250), other, x=30) == (GpuShare(A, 250),)


def test_less_memory_is_granted_at_once() -> None:
    """Also while others hold more than they should."""
    assert grant(BIG._replace(memory=30), holding("me", 250, 60), holding("x", 250), x=70) == (GpuShare(A, 250, 30),)


def test_memory_grows_on_no_gpu_that_an_intruder_uses() -> None:
    """Nobody knows how much that one has."""
    use = {A: MemoryUse(ALL, {})}
    assert permitted((BIG,), holding("me", 250), [], {A}, {A}, use) == (GpuShare(A, 250),)
    assert permitted((BIG,), holding("me"), [], {A}, {A}, use) == ()


def test_a_pod_has_the_less_of_what_it_has_and_was_given() -> None:
    """And never more than is left, whatever records say."""
    shares = {"x": GpuShare(A, 250, 60), "y": GpuShare(A, 250), "z": GpuShare(A, 500)}
    assert limits(ALL, shares, {}) == {"x": 60, "y": 20, "z": 0}
    assert limits(ALL, shares, {"x": GpuShare(A, 250), "z": BIG}) == {"x": 20, "y": 20, "z": 40}


milli = st.sampled_from([1, 250, 500, 1000])
memory = st.integers(0, ALL)
shares = st.builds(GpuShare, st.just(A), milli, memory)
some_shares = st.none() | shares


@st.composite
def holdings(draw: st.DrawFn, name: str) -> Holding:
    """Any holding of a pod."""
    has, drains, known = draw(some_shares), draw(some_shares), draw(st.booleans())
    return holding(name, has.milli if has else 0, has.memory if has else 0, drains=drains, known=known)


@given(shares, holdings("me"), holdings("x"), holdings("y"), st.dictionaries(st.sampled_from("xy"), memory))
def test_what_is_new_always_fits(
    share: GpuShare, own: Holding, one: Holding, other: Holding, used: dict[str, int]
) -> None:
    """Beside all that others may have or hold; and nobody gets more than was decided, or loses what it has open."""
    found = grant(share, own, one, other, **used)
    before = own.opened(A)
    had = booked(ALL, before.milli, before.memory)
    for got in found:
        has = booked(ALL, got.milli, got.memory)
        assert got.milli <= share.milli
        assert has <= booked(ALL, share.milli, share.memory)
        if has > had:
            assert one.known
            assert other.known
            taken = sum(
                max(pod.claimed_memory(A, ALL), used.get(name, ALL))
                for name, pod in (("x", one), ("y", other))
                if pod.claimed_memory(A, ALL)
            )
            assert has + taken <= ALL


@given(shares, shares, memory)
def test_a_second_step_changes_nothing(share: GpuShare, before: GpuShare, left: int) -> None:
    """Shares that were kept are kept again, as long as nothing comes free."""
    first = kept(share, before, ALL, left)
    assert first is not None
    again = kept(share, first, ALL, left)
    assert again is not None
    assert booked(ALL, again.milli, again.memory) == booked(ALL, first.milli, first.memory)
    assert again.milli == first.milli


@given(st.dictionaries(st.sampled_from("xyz"), shares), st.dictionaries(st.sampled_from("xyz"), shares))
def test_limits_never_exceed_the_memory(has: dict[str, GpuShare], decided: dict[str, GpuShare]) -> None:
    """Whatever records claim."""
    found = limits(ALL, has, decided)
    assert sum(found.values()) <= ALL
    assert found.keys() == has.keys()
    if sum(booked(ALL, share.milli, share.memory) for share in has.values()) <= ALL:
        assert all(found[pod] == booked(ALL, has[pod].milli, has[pod].memory) for pod in has.keys() - decided.keys())
