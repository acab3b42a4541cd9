"""New pods that start as guests: where owners rest, if no free GPU can serve them, and with nothing of anybody's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from jupyter_gpu.model.annotations import Allocated, Attached, Reason, Requested, Wish
from jupyter_gpu.model.demand import booked
from jupyter_gpu.model.errors import NoCapacity
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu_scheduler.rules.new_pods import guests as module
from jupyter_gpu_scheduler.rules.new_pods.admit import Admission, admit
from jupyter_gpu_scheduler.rules.new_pods.guests import could_be_guest, guest_nodes, next_guests
from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.new_pods.places import places, rate
from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.queue.candidates import FilterResult
from jupyter_gpu_scheduler.rules.queue.decide import GUEST, as_guest, decide
from jupyter_gpu_scheduler.rules.state.offers import offered_nodes
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PREEMPTIBLE, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, apply, facts, gpu, uuid

RULES = PairPolicy()
NODES = ("m", "n")
WORKS = frozenset([uuid(0), uuid(1)])


def owner(uid: str, node: str = "m", number: int = 0, milli: int = 1000, memory: int = 60, **fields: Any) -> PodState:
    """Return a pod that has a part of a GPU, or a lendable one."""
    share = GpuShare(uuid(number), milli, memory * GIB)
    wish = Wish(milli, memory=memory * GIB if milli < 1000 else None, lent=milli == 1000)
    has = {"allocated": Allocated(1, (share,)), "attached": Attached(1, (share,))}
    return PodState(uid, node, Requested(1, wish), **{**has, **fields})


def new(uid: str = "eve", milli: int = 500, memory: int = 20, *, preemptible: bool = True, **fields: Any) -> PodState:
    """Return a pod without a node."""
    wish = Wish(milli, memory=memory * GIB if memory else None)
    return PodState(uid, requested=Requested(1, wish, {PREEMPTIBLE: True} if preemptible else {}), **fields)


def world(*pods: PodState, lends: bool = True, slots: int = 9, **fields: Any) -> ClusterSnapshot:
    """Return two nodes with one GPU each, whose owners are Ann and Bob."""
    snapshot = ClusterSnapshot(lends=lends)
    for number, name in enumerate(NODES):
        snapshot.put_node(name, (gpu(0, uuid=uuid(number), **{"gate": True, **fields}),), facts(slots))
    for pod in (owner("ann"), owner("bob", "n", 1), *pods):
        snapshot.put_pod(pod)
    return snapshot


def asked(snapshot: ClusterSnapshot, uid: str, names: Sequence[str] = NODES) -> FilterResult:
    """Let kube-scheduler ask for a pod, and do what follows from the answer."""
    pod = snapshot.pod(uid)
    assert pod
    found = places(snapshot, PairChooser(snapshot, RULES), pod, names)
    waits = found.as_guest or not found.fitting
    pod = replace(pod, offered=offered_nodes(names) if waits else None)
    snapshot.put_pod(pod)
    if not found.fitting and (decision := nominate(snapshot, pod, names, RULES.policy)):
        snapshot.put_pod(replace(pod, allocated=decision.allocated))
    return found


def start(snapshot: ClusterSnapshot, uid: str, found: FilterResult) -> str:
    """Let kube-scheduler bind a pod to its best node; return that node."""
    pod, chooser = snapshot.pod(uid), PairChooser(snapshot, RULES)
    assert pod
    scores = rate(snapshot, chooser, pod, found.fitting, RULES.policy)
    node = max(found.fitting, key=lambda name: (scores[name], name))
    assert scores[node] == 10
    admitted = admit(snapshot, chooser, pod, node)
    assert isinstance(admitted, Admission)
    assert not admitted.part
    snapshot.put_pod(replace(pod, node=node, allocated=admitted.allocated, offered=None))
    return node


def shares(snapshot: ClusterSnapshot, uid: str) -> tuple[GpuShare, ...]:
    """Return what a pod is allocated."""
    pod = snapshot.pod(uid)
    return pod.allocated.shares if pod and pod.allocated else ()


def test_new_pod_starts_as_a_guest() -> None:
    """It is where the owner rests, in line there for what it asked for; the next decision has nothing to add."""
    snapshot = world(owner("bob", "n", 1, busy=WORKS), new())
    found = asked(snapshot, "eve")
    assert (found.fitting, found.as_guest, set(found.failed)) == (("m",), True, {"n"})
    assert start(snapshot, "eve", found) == "m"
    pod = snapshot.pod("eve")
    assert pod
    assert pod.allocated
    assert pod.allocated.shares == (GpuShare(uuid(0), 0, 20 * GIB),)
    assert (pod.allocated.reason, pod.allocated.ticket, pod.allocated.position) == (Reason.DEFERRED, 1, 1)
    assert pod.allocated.message.endswith(GUEST)
    assert not decide(snapshot, "m")
    assert (pod.has, pod.holds) == (0, 0)


def test_nobody_is_a_guest_beside_an_owner_that_works() -> None:
    """The node's own decision says so, whatever was thought of the node before."""
    snapshot = world(owner("bob", "n", 1, busy=WORKS))
    assert as_guest(snapshot, new(), "m")
    assert as_guest(snapshot, new(), "n") is None


def test_pod_that_waits_keeps_its_ticket() -> None:
    """It leaves the line where it stood, for that of the node where it is a guest."""
    snapshot = world(owner("ann", busy=WORKS), owner("bob", "n", 1, busy=WORKS), new())
    assert not asked(snapshot, "eve").fitting
    waiting = snapshot.pod("eve")
    assert waiting
    assert waiting.nominated == "m"
    assert (list(next_guests(snapshot)), could_be_guest(snapshot, waiting)) == ([waiting], False)
    snapshot.put_pod(owner("bob", "n", 1, busy=WORKS, resting=WORKS))
    assert could_be_guest(snapshot, waiting)
    assert start(snapshot, "eve", asked(snapshot, "eve")) == "n"
    pod = snapshot.pod("eve")
    assert pod
    assert pod.allocated
    assert pod.allocated.ticket == waiting.ticket
    assert NOMINATED not in pod.allocated.extra
    assert not list(next_guests(snapshot))
    assert not list(next_guests(world(waiting, lends=False)))


@pytest.mark.parametrize(
    ("me", "fields"),
    [
        ({"preemptible": False}, {}),
        ({"milli": 1000}, {}),
        ({"milli": 0}, {}),
        ({"memory": 21}, {}),
        ({"limit": 400}, {}),
        ({"fault": "It can't be read."}, {}),
        ({"blocked": True}, {}),
        ({"selector": {"pool": "a"}}, {}),
        ({}, {"gate": False}),
        ({}, {"slow": True}),
        ({}, {"healthy": False}),
        ({}, {"slots": 1}),
        ({}, {"lends": False}),
    ],
)
def test_it_is_no_guest(me: dict[str, Any], fields: dict[str, Any]) -> None:
    """It asks for other things, or may go there not at all; or the GPU can have no guest; or lending is off."""
    snapshot = world(new(**me), **fields)
    pod = snapshot.pod("eve")
    assert pod
    assert guest_nodes(snapshot, pod, NODES) == ()
    if me.get("milli") != 0:
        assert not asked(snapshot, "eve").fitting
    assert not could_be_guest(snapshot, pod)


def test_free_gpus_come_first() -> None:
    """A pod that fits on any node starts there with what it asked for, and is bound to no other one as a guest."""
    snapshot = world(owner("bob", "n", 1, milli=500), new())
    found = asked(snapshot, "eve")
    assert (found.fitting, found.as_guest) == (("n",), False)
    pod = snapshot.pod("eve")
    assert pod
    assert isinstance(admit(snapshot, PairChooser(snapshot, RULES), pod, "m"), NoCapacity)
    assert start(snapshot, "eve", found) == "n"
    assert shares(snapshot, "eve") == (GpuShare(uuid(1), 500, 20 * GIB),)


def test_place_that_is_gone_is_refused() -> None:
    """The owner works by the time of the bind; or kube-scheduler did not offer that node."""
    snapshot = world(new())
    found = asked(snapshot, "eve", ["m"])
    pod, chooser = snapshot.pod("eve"), PairChooser(snapshot, RULES)
    assert pod
    assert found.fitting == ("m",)
    assert isinstance(admit(snapshot, chooser, pod, "n"), NoCapacity)
    snapshot.put_pod(owner("ann", busy=WORKS))
    assert isinstance(admit(snapshot, chooser, pod, "m"), NoCapacity)
    assert rate(snapshot, chooser, pod, ["m"], RULES.policy) == {"m": 0}


def test_guests_choose_in_line_order() -> None:
    """A pod that waits and may be a guest there is first, unless it may go to other nodes alone, or waits for more."""
    first = new("dan", allocated=Allocated(1, ticket=1), offered=offered_nodes(["m"]))
    for before, left in (
        (first, ("n",)),
        (replace(first, offered=offered_nodes(["x"])), NODES),
        (replace(first, offered=None), NODES),
        (replace(first, blocked=True), NODES),
        (replace(first, allocated=Allocated(1, ticket=3)), NODES),
        (replace(first, requested=Requested(1, Wish(500, memory=30 * GIB), {PREEMPTIBLE: True})), NODES),
    ):
        me = new(allocated=Allocated(1, ticket=2))
        assert guest_nodes(world(before, me), me, NODES) == left, before


def test_it_does_not_overtake_a_request_without_a_ticket() -> None:
    """A pod that runs on that node has a request that is not decided yet."""
    dan = PodState("dan", "m", Requested(1, Wish(500)), created=-1.0)
    me = new()
    assert guest_nodes(world(dan, me), me, NODES) == ("n",)
    decided = replace(dan, allocated=Allocated(1, ticket=1))
    assert guest_nodes(world(decided, me), me, NODES) == NODES


def test_few_nodes_are_offered(monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as are examined."""
    monkeypatch.setattr(module, "MOST", 1)
    me = new()
    assert guest_nodes(world(me), me, NODES) == ("m",)


def test_it_goes_where_it_can_expect_the_most() -> None:
    """As a pod that wants no GPU yet: where fewer others wait for them."""
    snapshot = world(new())
    free = owner("cid", "n", 1, milli=0)
    for number in range(3):
        snapshot.put_pod(replace(free, uid=f"m-{number}", node="m", requested=None, allocated=None, attached=None))
    snapshot.put_node("n", (*(snapshot.gpus("n") or ()), gpu(1, uuid=uuid(11))), facts(9))
    snapshot.put_pod(owner("cid", "n", 11, milli=600, memory=0))
    assert start(snapshot, "eve", asked(snapshot, "eve")) == "n"


def test_pod_gets_its_guests_place_again_after_another_guest() -> None:
    """A GPU has one guest; the next pod waits in line until that one is gone."""
    snapshot = world(owner("bob", "n", 1, busy=WORKS), new(memory=10), new("fay", memory=10))
    start(snapshot, "eve", asked(snapshot, "eve"))
    assert not asked(snapshot, "fay").fitting
    snapshot.remove_pod("eve")
    assert start(snapshot, "fay", asked(snapshot, "fay")) == "m"


GPUS = {"m": (0, 1), "n": (10,)}
OWNERS, NEW = ("ann", "bob", "cid"), ("dan", "eve", "fay")
_wishes = some.builds(
    Wish,
    some.sampled_from([0, 100, 400, 500, 600, 1000, 1500]),
    memory=some.sampled_from([None, GIB, 10 * GIB, 20 * GIB, 40 * GIB]),
    lent=some.booleans(),
    priority=some.sampled_from([None, 5]),
)
_parts = some.builds(Wish, some.sampled_from([100, 400, 500, 1000]), memory=some.sampled_from([None, GIB, 20 * GIB]))
_steps = some.lists(
    some.one_of(
        some.tuples(some.just("wish"), some.sampled_from(OWNERS), _wishes),
        some.tuples(some.just("use"), some.sampled_from(OWNERS + NEW), some.sampled_from(["closed", "rests", "works"])),
        some.tuples(some.just("follow"), some.sampled_from(OWNERS + NEW), some.none()),
        some.tuples(some.just("ask"), some.sampled_from(NEW), some.tuples(_parts, some.booleans())),
        some.tuples(some.just("ask"), some.sampled_from(NEW), some.tuples(_parts, some.just(True))),
        some.tuples(some.just("gone"), some.sampled_from(NEW), some.none()),
    ),
    min_size=3,
    max_size=14,
)


@given(_steps)
@settings(deadline=None, max_examples=60)
def test_nobody_loses_anything_to_a_new_guest(steps: Sequence[tuple[str, str, Any]]) -> None:
    """Time and memory are never given twice; what starts as a guest changes nothing that any other pod has or gets.

    And nothing is left to decide for it.
    """
    snapshot = ClusterSnapshot(lends=True)
    for name, numbers in GPUS.items():
        gpus = tuple(gpu(index, uuid=uuid(number), gate=True) for index, number in enumerate(numbers))
        snapshot.put_node(name, gpus, facts(9))
    for number, uid in enumerate(OWNERS):  # each begins with a GPU that it lends
        snapshot.put_pod(owner(uid, "mn"[number // 2], (0, 1, 10)[number], created=float(number)))
    for kind, uid, value in steps:
        pod = snapshot.pod(uid)
        if kind == "ask":
            if pod is None:
                wish, preemptible = value
                extra = {PREEMPTIBLE: True} if preemptible else {}
                snapshot.put_pod(PodState(uid, requested=Requested(1, wish, extra), created=9.0))
            _ask(snapshot, uid)
        elif pod is not None:
            _change(snapshot, pod, kind, value)
        for name in NODES:
            apply(snapshot, decide(snapshot, name))
            _check(snapshot, name)


def _change(snapshot: ClusterSnapshot, pod: PodState, kind: str, value: Any) -> None:
    if kind == "gone":
        snapshot.remove_pod(pod.uid)
    elif kind == "wish":
        snapshot.put_pod(replace(pod, requested=Requested(pod.requested.generation + 1 if pod.requested else 1, value)))
    elif kind == "use":
        every = frozenset(share.uuid for share in pod.attached.shares) if pod.attached else frozenset[str]()
        rests = every if value == "rests" else frozenset[str]()
        snapshot.put_pod(replace(pod, busy=frozenset() if value == "closed" else every, resting=rests))
    elif pod.node and pod.allocated:
        attached = Attached(1, pod.allocated.shares, revision=pod.allocated.revision)
        snapshot.put_pod(replace(pod, attached=attached))


def _ask(snapshot: ClusterSnapshot, uid: str) -> None:
    pod = snapshot.pod(uid)
    if pod is None or not pod.pending:
        return
    found = asked(snapshot, uid)
    if not found.fitting:
        return
    before = {each.uid: _own(each) for name in NODES for each in snapshot.pods(name)}
    name = start(snapshot, uid, found)
    if not found.as_guest:
        return
    assert all(share.guest for share in shares(snapshot, uid))
    assert len(shares(snapshot, uid)) == 1
    decisions = decide(snapshot, name)
    assert uid not in [decision.uid for decision in decisions]
    apply(snapshot, decisions)
    assert {each.uid: _own(each) for name in NODES for each in snapshot.pods(name) if each.uid != uid} == before


def _own(pod: PodState) -> tuple[GpuShare, ...]:
    return tuple(share for share in pod.allocated.shares if not share.guest) if pod.allocated else ()


def _check(snapshot: ClusterSnapshot, name: str) -> None:
    assert decide(snapshot, name) == ()
    for one in snapshot.gpus(name) or ():
        assert sum(snapshot.holders(one.uuid, name).values()) <= 1000
        assert sum(_bytes(pod, one) for pod in snapshot.pods(name)) <= one.memory


def _bytes(pod: PodState, one: Gpu) -> int:
    """Return the most memory of a GPU that the node has given a pod or may give it next.

    The books may count more for a moment: of two shares there that are revoked at once the larger part.
    """
    given = pod.allocated.shares if pod.allocated else ()
    there = pod.attached.shares if pod.attached else ()
    found = [share for share in (*given, *there) if share.uuid == one.uuid]
    return max((booked(one.memory, share.milli, share.memory) for share in found), default=0)
