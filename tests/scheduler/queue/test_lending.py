"""Guests: preemptible pods on GPUs that others have and leave idle. They take nothing that is given."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.gpu import DrainingShare, GpuShare
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.queue.decide import GUEST, decide
from jupyter_gpu_scheduler.rules.state.pod_state import PREEMPTIBLE, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, NODE, apply, facts, gpu, uuid

ANN = GpuShare(uuid(0), 600, 20 * GIB)
BOB = GpuShare(uuid(0), 400, 20 * GIB)
EVE = GpuShare(uuid(0), 0, 40 * GIB)
"""All that Ann and Bob leave of the memory."""
WORKS = frozenset([uuid(0)])


def _pod(uid: str, wish: Wish, *shares: GpuShare, preemptible: bool = False, **fields: Any) -> PodState:
    has = Allocated(1, shares) if shares else None
    attached = Attached(1, shares) if shares else None
    extra = {PREEMPTIBLE: True} if preemptible else {}
    return PodState(uid, NODE, Requested(2, wish, extra), has, attached, created=float(ord(uid[0])), **fields)


def _owner(uid: str, share: GpuShare, **fields: Any) -> PodState:
    return _pod(uid, Wish(share.milli, memory=share.memory or None), share, **fields)


def _guest(memory: int = 40, milli: int = 500, **fields: Any) -> PodState:
    return _pod("eve", Wish(milli, memory=memory * GIB), preemptible=True, **fields)


def _world(*pods: PodState, lends: bool = True, **fields: Any) -> ClusterSnapshot:
    snapshot = ClusterSnapshot(lends=lends)
    snapshot.put_node(NODE, (gpu(0, **{"gate": True, **fields}),), facts())
    for pod in pods:
        snapshot.put_pod(pod)
    return snapshot


def _shares(snapshot: ClusterSnapshot, uid: str) -> tuple[GpuShare, ...]:
    pod = snapshot.pod(uid)
    return pod.allocated.shares if pod and pod.allocated else ()


def _decided(snapshot: ClusterSnapshot, uid: str = "eve") -> tuple[GpuShare, ...]:
    apply(snapshot, decide(snapshot, NODE))
    assert decide(snapshot, NODE) == ()
    return _shares(snapshot, uid)


def _follow(snapshot: ClusterSnapshot) -> None:
    """Let the node carry out what was decided; all that goes is closed."""
    for pod in snapshot.pods(NODE):
        shares, revision = (pod.allocated.shares, pod.allocated.revision) if pod.allocated else ((), 0)
        snapshot.put_pod(replace(pod, attached=Attached(2, shares, revision=revision)))


def _change(snapshot: ClusterSnapshot, uid: str, **fields: Any) -> None:
    pod = snapshot.pod(uid)
    assert pod
    snapshot.put_pod(replace(pod, **fields))


def test_a_preemptible_pod_is_a_guest_while_owners_rest() -> None:
    """It has the memory that they left, stays in line for what it wishes, and is told both."""
    snapshot = _world(_owner("ann", ANN, busy=frozenset([uuid(0)]), resting=frozenset([uuid(0)])), _owner("bob", BOB))
    snapshot.put_pod(_guest())
    assert _decided(snapshot) == (EVE,)
    pod = snapshot.pod("eve")
    assert pod
    assert pod.allocated
    assert (pod.allocated.reason, pod.allocated.position, pod.has, pod.holds) == (Reason.DEFERRED, 1, 0, 0)
    assert pod.allocated.message.endswith("not enough is free now." + GUEST)
    assert snapshot.free(uuid(0)) == 0
    assert snapshot.free_memory(gpu(0), NODE) == 0


@pytest.mark.parametrize(
    ("ann", "eve", "node"),
    [
        ({"busy": WORKS}, {}, {}),
        ({}, {"memory": 41}, {}),
        ({}, {"preemptible": False}, {}),
        ({}, {"milli": 1000}, {}),
        ({}, {"blocked": True}, {}),
        ({}, {}, {"gate": False}),
        ({}, {}, {"slow": True}),
        ({}, {}, {"healthy": False}),
        ({}, {}, {"lends": False}),
    ],
)
def test_there_is_no_guest(ann: dict[str, Any], eve: dict[str, Any], node: dict[str, Any]) -> None:
    """An owner works; too little memory; not preemptible; no part of a GPU; the GPU cannot have one; it is off."""
    guest = _guest(**{key: eve[key] for key in ("memory", "milli") if key in eve})
    if "preemptible" in eve and guest.requested:
        guest = replace(guest, requested=replace(guest.requested, extra={}))
    guest = replace(guest, blocked=eve.get("blocked", False))
    assert _decided(_world(_owner("ann", ANN, **ann), _owner("bob", BOB), guest, **node)) == ()


def test_without_an_amount_of_memory_it_needs_the_part_of_its_wish() -> None:
    """As of each wish of a part of a GPU."""
    guest = _pod("eve", Wish(250), preemptible=True)
    assert _decided(_world(_owner("ann", ANN), _owner("bob", BOB), guest)) == (GpuShare(uuid(0), 0, 20 * GIB),)


WHOLE = GpuShare(uuid(0), 1000)
LENDABLE = GpuShare(uuid(0), 1000, 60 * GIB)


def test_a_whole_gpu_has_no_guest() -> None:
    """Its programs are not under the gate: they cannot be asked to wait."""
    assert _decided(_world(_pod("ann", Wish(1000), WHOLE), _guest(1))) == ()


def _lends(*shares: GpuShare, memory: int | None = None, **fields: Any) -> PodState:
    wish = Wish(1000, memory=memory * GIB if memory else None, lent=True)
    return _pod("ann", wish, *shares, **fields)


@pytest.mark.parametrize("open_now", [frozenset(), WORKS])
def test_a_lendable_gpu_has_a_guest_while_its_owner_rests(open_now: frozenset[str]) -> None:
    """Closed or open; with a quarter of the memory, and not a byte more. The owner's share is that of before."""
    ann = _lends(LENDABLE, busy=open_now, resting=open_now)
    assert _decided(_world(ann, _guest(21))) == ()
    snapshot = _world(ann, _guest(20))
    assert _decided(snapshot) == (GpuShare(uuid(0), 0, 20 * GIB),)
    assert _shares(snapshot, "ann") == (LENDABLE,)
    _follow(snapshot)
    _change(snapshot, "ann", busy=WORKS, resting=frozenset())
    assert _decided(snapshot) == (), "the owner works"
    assert _shares(snapshot, "ann") == (LENDABLE,)


@pytest.mark.parametrize("before", [(), (WHOLE,)])
def test_a_gpu_becomes_lendable_where_it_is(before: tuple[GpuShare, ...]) -> None:
    """A new one from the start, one that its pod has at once; on a GPU without the gate none."""
    assert _decided(_world(_lends(*before)), "ann") == (LENDABLE,)
    assert _decided(_world(_lends(*before, memory=70)), "ann") == (LENDABLE._replace(memory=70 * GIB),)
    assert _decided(_world(_lends(*before, memory=80)), "ann") == (WHOLE,)
    assert _decided(_world(_lends(*before), gate=False), "ann") == (WHOLE,)


def test_an_owner_has_its_gpu_for_itself_again() -> None:
    """The guest goes, though its owner rests; once it has closed the GPU, all of the memory is the owner's."""
    snapshot = _world(_lends(LENDABLE), _guest(20))
    _decided(snapshot)
    _follow(snapshot)
    _change(snapshot, "ann", requested=Requested(3, Wish(1000)))
    assert _decided(snapshot) == ()
    assert _shares(snapshot, "ann") == (LENDABLE,)
    _follow(snapshot)
    assert _decided(snapshot, "ann") == (WHOLE,)
    assert _shares(snapshot, "eve") == ()


def test_a_guest_goes_when_an_owner_wants_more_memory() -> None:
    """And comes before it in line: all time is booked, so no other pod could use what the guest has."""
    snapshot = _world(_owner("ann", ANN), _owner("bob", BOB), _guest())
    _decided(snapshot)
    _follow(snapshot)
    _change(snapshot, "ann", requested=Requested(3, Wish(600, memory=30 * GIB)))
    assert _decided(snapshot) == (EVE,), "she has waited longer"
    _change(snapshot, "ann", requested=Requested(4, Wish(600, memory=30 * GIB, priority=9)))
    assert _decided(snapshot) == ()
    _follow(snapshot)
    assert _decided(snapshot, "ann") == (ANN._replace(memory=30 * GIB),)


def test_a_gpu_has_one_guest() -> None:
    """The first in line; the second follows when that is gone."""
    second = replace(_guest(10), uid="fay", created=200.0)
    snapshot = _world(_owner("ann", ANN), _owner("bob", BOB), _guest(20), second)
    assert (_decided(snapshot), _shares(snapshot, "fay")) == ((GpuShare(uuid(0), 0, 20 * GIB),), ())
    snapshot.remove_pod("eve")
    assert _decided(snapshot, "fay") == (GpuShare(uuid(0), 0, 10 * GIB),)


def test_a_guest_goes_when_an_owner_works() -> None:
    """Its memory stays its own until its node has closed it; it comes again when the owner rests."""
    snapshot = _world(_owner("ann", ANN), _owner("bob", BOB), _guest())
    _decided(snapshot)
    _follow(snapshot)
    _change(snapshot, "bob", busy=WORKS)
    assert _decided(snapshot) == ()
    assert snapshot.free_memory(gpu(0), NODE) == 0
    _follow(snapshot)
    assert snapshot.free_memory(gpu(0), NODE) == 40 * GIB
    _change(snapshot, "bob", resting=WORKS)
    assert _decided(snapshot) == (EVE,)


def test_a_guest_goes_when_a_waiting_pod_can_use_its_memory() -> None:
    """Time became free, and memory did not suffice beside the guest."""
    snapshot = _world(_owner("ann", ANN), _owner("bob", BOB), _guest())
    _decided(snapshot)
    _follow(snapshot)
    snapshot.put_pod(_pod("dan", Wish(400, memory=50 * GIB, priority=9)))
    assert _decided(snapshot) == (EVE,), "there is no time for Dan yet"
    snapshot.remove_pod("bob")
    assert _decided(snapshot) == ()
    assert _shares(snapshot, "dan") == ()
    _follow(snapshot)
    assert _decided(snapshot, "dan") == (GpuShare(uuid(0), 400, 50 * GIB),)
    assert _shares(snapshot, "eve") == ()


def test_a_guest_gets_its_share_where_it_is() -> None:
    """Time became free: what was lent is its own then, with what it wished."""
    snapshot = _world(_owner("ann", ANN), _owner("bob", BOB), _guest(30, 400))
    _decided(snapshot)
    _follow(snapshot)
    _change(snapshot, "eve", busy=WORKS)
    snapshot.remove_pod("bob")
    assert _decided(snapshot) == (GpuShare(uuid(0), 400, 30 * GIB),)
    _follow(snapshot)
    assert snapshot.free(uuid(0)) == 0


@pytest.mark.parametrize("milli", [0, 3000])
def test_a_guest_ends_with_its_wish(milli: int) -> None:
    """A pod has nothing that wishes nothing, or what its node can never serve."""
    snapshot = _world(_owner("ann", ANN), _owner("bob", BOB), _guest())
    _decided(snapshot)
    _change(snapshot, "eve", requested=Requested(3, Wish(milli), {PREEMPTIBLE: True}))
    assert _decided(snapshot) == ()


UIDS = ("ann", "bob", "dan", "eve", "fay")
_wishes = st.builds(
    Wish,
    st.sampled_from([0, 100, 400, 500, 600, 1000, 1500]),
    memory=st.sampled_from([None, GIB, 20 * GIB, 40 * GIB]),
    lent=st.booleans(),
)
_steps = st.lists(
    st.one_of(
        st.tuples(st.just("wish"), st.sampled_from(UIDS), _wishes),
        st.tuples(st.just("use"), st.sampled_from(UIDS), st.sampled_from(["closed", "rests", "works"])),
        st.tuples(st.just("follow"), st.sampled_from(UIDS), st.booleans()),
        st.tuples(st.just("gone"), st.sampled_from(UIDS), st.none()),
    ),
    max_size=10,
)


@given(_steps)
def test_nothing_is_given_twice_whatever_happens(steps: list[tuple[str, str, Any]]) -> None:
    """Time and memory together are at most the GPU; a guest is alone as such, and beside no whole GPU of another pod.

    But for a lendable one, whose owner keeps its memory. And whether GPUs are lent changes nothing for those who are no
    guests.
    """
    gpus = (gpu(0, gate=True), gpu(1, gate=True))
    snapshot = ClusterSnapshot(lends=True)
    snapshot.put_node(NODE, gpus, facts())
    for number, uid in enumerate(UIDS):
        snapshot.put_pod(PodState(uid, NODE, created=float(number)))
    for kind, uid, value in steps:
        pod = snapshot.pod(uid)
        assert pod
        every = frozenset(share.uuid for share in pod.attached.shares) if pod.attached else frozenset[str]()
        if kind == "wish":
            generation = pod.requested.generation + 1 if pod.requested else 1
            extra = {PREEMPTIBLE: True} if uid in ("eve", "fay") else {}
            _change(snapshot, uid, requested=Requested(generation, value, extra))
        elif kind == "use":
            _change(snapshot, uid, busy=every if value != "closed" else frozenset(), resting=every)
            _change(snapshot, uid, resting=every if value == "rests" else frozenset())
        elif kind == "gone":
            snapshot.put_pod(PodState(uid, NODE, created=pod.created))
        elif pod.allocated:
            _node_follows(snapshot, pod, closes=value)
        if not any(share.guest for uid in UIDS for share in _held(snapshot, uid)):
            _same_for_others(snapshot)
        apply(snapshot, decide(snapshot, NODE))
        assert decide(snapshot, NODE) == ()
        for one in gpus:
            _check_books(snapshot, one.uuid)


def _held(snapshot: ClusterSnapshot, uid: str) -> list[GpuShare]:
    """Return all that a pod has or may have."""
    pod = snapshot.pod(uid)
    assert pod
    shares = [*pod.allocated.shares, *pod.allocated.pending(pod.attached)] if pod.allocated else []
    if pod.attached:
        shares += [*pod.attached.shares, *(item.share for item in pod.attached.draining)]
    return shares


def _node_follows(snapshot: ClusterSnapshot, pod: PodState, *, closes: bool) -> None:
    """Let the node attach what was decided; what goes drains, or is closed if the pod's programs do that."""
    assert pod.allocated
    now = {share.uuid for share in pod.allocated.shares}
    leaving = {share.uuid: share for share in _held(snapshot, pod.uid) if share.uuid not in now and not closes}
    draining = tuple(DrainingShare(share.uuid, share.milli, memory=share.memory) for share in leaving.values())
    attached = Attached(1, pod.allocated.shares, draining, revision=pod.allocated.revision)
    _change(snapshot, pod.uid, attached=attached)


def _same_for_others(snapshot: ClusterSnapshot) -> None:
    other = ClusterSnapshot()
    other.put_node(NODE, snapshot.gpus(NODE) or (), facts())
    for pod in snapshot.pods(NODE):
        other.put_pod(pod)
    with_guests, without = (
        {one.uid: [share for share in one.allocated.shares if not share.guest] for one in decide(each, NODE)}
        for each in (snapshot, other)
    )
    assert {uid: shares for uid, shares in with_guests.items() if shares or uid in without} == without


def _check_books(snapshot: ClusterSnapshot, name: str) -> None:
    found = {uid: [share for share in _held(snapshot, uid) if share.uuid == name] for uid in UIDS}
    milli = {uid: max(share.milli for share in shares) for uid, shares in found.items() if shares}
    memory = {
        uid: max(share.memory or 80 * GIB * share.milli // 1000 for share in shares)
        for uid, shares in found.items()
        if shares
    }
    assert sum(milli.values()) <= 1000
    assert sum(memory.values()) <= 80 * GIB
    guests = [uid for uid, shares in found.items() if any(share.guest for share in shares)]
    alone = [uid for uid in guests if not milli[uid]]
    assert len(alone) <= 1
    for share in [share for uid, shares in found.items() if uid not in guests for share in shares]:
        assert not guests or not share.exclusive
        assert not share.lendable or share.memory >= 60 * GIB
    for uid in alone:
        pod = snapshot.pod(uid)
        assert pod
        assert pod.preemptible


def test_the_decision_tells_the_panel_whether_it_can_offer_lending() -> None:
    """Once, at each change of it; where the wish does not decide that, nothing is told."""
    ann = _owner("ann", ANN)
    for by_wish, told in ((False, None), (True, False), (False, None)):
        snapshot = _world(replace(ann, lends_by_wish=by_wish))
        _decided(snapshot, "ann")
        after = snapshot.pod("ann")
        assert after
        assert after.allocated
        assert after.allocated.lendable is told
        ann = after
    assert ann.requested
    lent = replace(ann, requested=replace(ann.requested, wish=replace(ann.requested.wish, lent=True)))
    made = allocate(
        _world(), replace(lent, uid="new", node="", allocated=None, attached=None, lends_by_wish=True), NODE
    )
    assert isinstance(made, Allocated)
    assert made.lendable is True
