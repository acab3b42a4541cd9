"""Parked GPUs in the wish, the line, limits, accounts and the books: nothing, until a program needs it."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Attached, Reason
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.parking import ParkedShare
from jupyter_gpu.model.status import Phase, status
from jupyter_gpu_scheduler.rules.accounts.counters import rates
from jupyter_gpu_scheduler.rules.accounts.meter import GpuTimeMeter
from jupyter_gpu_scheduler.rules.accounts.statement import waits_for
from jupyter_gpu_scheduler.rules.limits.claims import same_claims
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.parked import parked_part
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, NODE, decided, inventory, pod, uuid, wish, world

from .pods import away, parked

ANN = Owner("User", "ann")

WISHES: dict[str, tuple[PodState, int]] = {
    "nothing of it": (parked(pod("a", wants=1, has=[]), away(0)), 0),
    "nothing of it, just parked": (parked(pod("a", wants=1, has=[0], attaches=[]), away(0)), 0),
    "what is attached": (parked(pod("a", wants=2, has=[1]), away(0)), 1000),
    "what is attached comes before what is parked, if less is wished": (
        parked(pod("a", wants=1, has=[1]), away(0)),
        1000,
    ),
    "less than is attached, if less is wished": (parked(pod("a", wants=1, has=[1, 2]), away(0)), 1000),
    "more, if more is wished": (parked(pod("a", wants=3, has=[1]), away(0)), 2000),
    "less was wished than is parked": (parked(pod("a", wants=0.5, has=[]), away(0)), 0),
    "all once it is needed": (parked(pod("a", wants=1, has=[]), away(0, needed=True)), 1000),
    "no more than comes back, until it is back": (parked(pod("a", wants=3, has=[1]), away(0, needed=True)), 2000),
    "a bundle as a whole": (parked(pod("a", wants=2, has=[]), away(0), away(1, needed=True)), 2000),
    "a bundle that is more than the wish": (parked(pod("a", wants=1, has=[]), away(0, needed=True), away(1)), 0),
    "the bundle that was parked first": (
        parked(pod("a", wants=1, has=[]), away(0, "y", needed=True), away(1, "z", since=50, needed=True)),
        1000,
    ),
    "one bundle of two": (parked(pod("a", wants=2, has=[]), away(0, "y", needed=True), away(1, "z")), 1000),
    "a GPU of two bundles counts once": (
        parked(pod("a", wants=2, has=[]), away(0, "y", needed=True), away(0, "z", needed=True)),
        1000,
    ),
    "a bundle that sleeps on a GPU that comes back": (
        parked(pod("a", wants=1, has=[]), away(0, "y", needed=True), away(0, "z")),
        1000,
    ),
    "what came back": (parked(pod("a", wants=1, has=[0], attaches=[]), away(0, needed=True)), 1000),
    "a GPU that other programs of the pod have": (parked(pod("a", wants=1, has=[0]), away(0)), 1000),
    "what is swapped stays": (parked(pod("a", wants=0.5, has={0: 500}), away(0, milli=500, kept=True)), 500),
    "what is swapped holds up nothing": (parked(pod("a", wants=2, has=[0]), away(0, kept=True, needed=True)), 2000),
    "shares of its size": (parked(pod("a", wants=1, each=250, has=[]), away(0, milli=250)), 750),
}


@pytest.mark.parametrize(("state", "milli"), WISHES.values(), ids=WISHES.keys())
def test_wish_leaves_out_what_is_parked(state: PodState, milli: int) -> None:
    """Attached and needed GPUs count of a wish, and no others."""
    assert state.wish
    assert state.wish.milli == milli == state.wished


def test_pod_without_a_wish_wishes_nothing() -> None:
    """A pod that never asked can have something parked, from a wish that was taken away."""
    assert parked(pod("a", has=[]), away(0)).wish is None


def test_allowance_cuts_what_is_left_of_the_wish() -> None:
    """A limit permits nothing of what is parked and not needed, and says nothing about it."""
    asleep = replace(parked(pod("a", wants=2, has=[1]), away(0)), allowance=1000)
    assert asleep.wish == wish(1)
    assert not asleep.cut
    needed = replace(parked(pod("a", wants=2, has=[1]), away(0, needed=True)), allowance=1000)
    assert needed.wish == wish(1)
    assert needed.cut


def test_most_that_a_node_can_serve_is_less_what_is_parked() -> None:
    """A wish that several nodes serve has its part here, and nothing of it while it is parked."""
    assert replace(parked(pod("a", wants=3, has=[]), away(0)), most_here=1000).wish == wish(1)
    assert replace(parked(pod("a", wants=1, has=[]), away(0)), most_here=1000).wish == wish(0)


def test_pod_stands_in_no_line_until_it_needs_what_is_parked() -> None:
    """Without a need it gets no ticket, however much is free; with one it has its GPU back."""
    asleep = parked(pod("a", wants=1, has=[]), away(0))
    snapshot = world(2, [asleep])
    assert not decide(snapshot, NODE)
    assert not snapshot.line(NODE)
    assert not snapshot.unserved(asleep.owner)
    snapshot.put_pod(parked(pod("a", wants=1, has=[]), away(0, needed=True)))
    assert decided(snapshot) == {"a": {0: 1000}}


def test_parked_gpu_leaves_the_shares_unrevoked_and_another_pod_has_it_in_the_same_pass() -> None:
    """It is closed already, so nothing is waited for; a new pod must wait until it is recorded."""
    snapshot = world(1, [parked(pod("a", wants=1, has=[0], attaches=[]), away(0)), pod("b", wants=1, has=[], ticket=1)])
    found = {one.uid: one for one in decide(snapshot, NODE)}
    assert found["a"].allocated.shares == found["a"].allocated.revoked == ()
    assert found["a"].allocated.revision == 0
    assert [share.uuid for share in found["a"].removed] == [uuid(0)] == [share.uuid for share in found["b"].added]
    assert found["a"].allocated.reason is None
    assert snapshot.free(uuid(0)) == 0
    assert decided(snapshot) == {"a": {}, "b": {0: 1000}}
    assert not decide(snapshot, NODE)


def test_parked_memory_is_free_in_the_same_pass() -> None:
    """Memory that a parked share records is free for others with its milli."""
    gpus = tuple(replace(each, gate=True) for each in inventory(1))
    gone = parked(pod("a", wants=0.5, memory=60 * GIB, has=[], attaches=[]), away(0, milli=500, memory=60 * GIB))
    assert gone.allocated
    share = away(0, milli=500, memory=60 * GIB).share
    gone = replace(gone, allocated=replace(gone.allocated, shares=(share,)))
    other = pod("b", wants=0.5, memory=70 * GIB, has=[], ticket=1)
    assert decided(world(gpus, [gone, other])) == {"a": {}, "b": {0: 500}}


def test_what_is_still_needed_stays_allocated() -> None:
    """A need that comes before the GPU was taken out of the shares has it back without a line."""
    state = parked(pod("a", wants=1, has=[0], attaches=[]), away(0, needed=True))
    assert state.settled() is state
    assert not decide(world(1, [state, pod("b", wants=1, has=[], ticket=1)]), NODE)[1:]
    assert decided(world(1, [state])) == {"a": {0: 1000}}


def test_pod_gets_no_other_use_of_a_gpu_where_its_data_sleep() -> None:
    """More is taken elsewhere; where nothing else is, it waits, and keeps that GPU back from nobody."""
    asleep = parked(pod("a", wants=2, has=[]), away(0))
    assert decided(world(2, [asleep])) == {"a": {1: 1000}}
    full = world(1, [asleep, pod("b", wants=1, has=[], ticket=2)])
    assert decided(full) == {"a": {}, "b": {0: 1000}}


def _with(limits: OwnerLimits, *pods: PodState, fair: bool = False) -> ClusterSnapshot:
    snapshot = world(4, pods)
    found = terms(snapshot, pods, limits, stored=None, now=0, fair=fair)
    for each in pods:
        snapshot.put_pod(found.pods[each.uid].applied(each))
    return snapshot


LIMITS: dict[str, OwnerLimits] = {
    "GPUs": OwnerLimits(gpus=Maximum(1000)),
    "GPUs of a model": OwnerLimits(models={"simulated": Maximum(1000)}),
    "memory": OwnerLimits(memory=Maximum(80 * GIB)),
    "GPUs and memory": OwnerLimits(gpus=Maximum(1000), memory=Maximum(80 * GIB)),
}


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS.keys())
@pytest.mark.parametrize("fair", [False, True])
def test_limits_count_nothing_that_is_parked(limits: OwnerLimits, fair: bool) -> None:
    """The owner's other pod may have all of the maximum; then what is needed waits for the limit, in no line."""
    asleep, other = parked(pod("a", wants=1, has=[], ticket=None), away(0)), pod("b", wants=1)
    snapshot = _with(limits, asleep, other, fair=fair)
    assert decided(snapshot)["b"] == {0: 1000}
    now = parked(pod("a", wants=1, has=[]), away(1, needed=True))
    served = pod("b", wants=1, has=[0])
    snapshot = _with(limits, now, served, fair=fair)
    assert decided(snapshot) == {"a": {}, "b": {0: 1000}}
    refused = snapshot.pod("a")
    assert refused
    assert refused.allocated
    assert refused.allocated.reason is Reason.LIMIT_EXCEEDED
    assert refused.ticket is None


def test_need_is_another_claim_on_the_limits() -> None:
    """The terms of an owner's pods are computed anew when a need comes or goes."""
    asleep = parked(pod("a", wants=1, has=[]), away(0))
    needed = parked(pod("a", wants=1, has=[]), away(0, needed=True))
    assert same_claims(asleep, asleep)
    assert not same_claims(asleep, needed)


def test_memory_limit_counts_shares_with_their_own_memory_as_parked_too() -> None:
    """Where shares record their memory, a parked one is no part of what is wished of the maximum."""
    gpus = tuple(replace(each, gate=True) for each in inventory(2))
    asleep = parked(pod("a", wants=0.5, memory=60 * GIB, has=[]), away(0, milli=500))
    other = pod("b", wants=0.5, memory=60 * GIB)
    snapshot = world(gpus, [asleep, other])
    found = terms(snapshot, [asleep, other], OwnerLimits(memory=Maximum(60 * GIB)), stored=None, now=0)
    for each in (asleep, other):
        snapshot.put_pod(found.pods[each.uid].applied(each))
    assert decided(snapshot) == {"a": {}, "b": {0: 500}}


def test_accounts_count_nothing_that_is_parked() -> None:
    """Hours, waits and metrics of the owner stand still while it is parked, and go on with the return."""
    asleep = parked(replace(pod("a", wants=1, has=[]), owner=ANN), away(0))
    snapshot = world(1, [asleep])
    assert waits_for(snapshot, ANN) == 0 == snapshot.holds(ANN) == snapshot.claims(ANN)
    assert not rates(asleep, {uuid(0): "A100"}, ["A100"], "names")
    meter = GpuTimeMeter(0).holding(1000).counted(10, 10, UTC).holding(snapshot.holds(ANN)).counted(100, 100, UTC)
    assert meter.used == {date(1970, 1, 1): 10_000}
    snapshot.put_pod(parked(replace(pod("a", wants=1, has=[]), owner=ANN), away(0, needed=True)))
    assert waits_for(snapshot, ANN) == 1000


_items = st.builds(
    away,
    st.integers(0, 3),
    st.sampled_from("xyz"),
    milli=st.sampled_from([500, 1000]),
    since=st.integers(0, 3),
    needed=st.booleans(),
    kept=st.booleans(),
)


@given(st.lists(_items, max_size=5), st.sets(st.integers(0, 3)), st.integers(0, 4), st.integers(0, 4000))
def test_what_is_parked_never_takes_from_what_is_attached(
    items: list[ParkedShare], has: set[int], wants: int, room: int
) -> None:
    """A wish is never above the user's, nor below what is attached of it; each GPU comes back once, within the room."""
    state = parked(pod("a", wants=wants, has=has), *items)
    assert state.wish
    assert min(wants, len(has)) * 1000 <= state.wish.milli <= wants * 1000
    part = parked_part(state.attached or Attached(0))
    assert part.away.isdisjoint(uuid(index) for index in has)
    missing = [share for bundle in part.missing([uuid(index) for index in has], room) for share in bundle]
    assert len({share.uuid for share in missing}) == len(missing)
    assert total(missing) <= room
    assert part.away.isdisjoint(share.uuid for share in missing)


def test_panel_says_parked_while_nothing_is_needed() -> None:
    """The decision fits what the panel computes of it."""
    asleep = parked(pod("a", wants=1, has=[0], attaches=[]), away(0))
    (decision,) = decide(world(1, [asleep]), NODE)
    assert status(asleep.requested, decision.allocated, asleep.attached).phase is Phase.PARKED
