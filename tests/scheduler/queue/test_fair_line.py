"""The fair line: whose pod is served next, step by step; and that no pod waits for ever."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.owner_limits import Maximum, OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import decide, decide_in_steps
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import MAX_WEIGHT, OwnerStanding, next_amount, share
from tests.builders import NODE, apply, by_index, cluster, gpu, inventory, new, pod, wish, world

POLICY = Policy()


def _user(name: str) -> Owner:
    return Owner("User", name, "hub")


def _of(name: str, *pods: PodState) -> list[PodState]:
    return [replace(state, owner=_user(name)) for state in pods]


def _divide(snapshot: ClusterSnapshot, limits: dict[str, OwnerLimits] | None = None) -> None:
    """Give the pods of all users their terms, as the process does after each change."""
    for owner in tuple(snapshot.owners()):
        pods = snapshot.owned(owner)
        own = (limits or {}).get(owner.name, OwnerLimits())
        found = terms(snapshot, pods, own, stored=None, now=0, fair=owner.kind == "User").pods
        for state in pods:
            snapshot.put_pod(found[state.uid].applied(state))


def _served(
    snapshot: ClusterSnapshot, limits: dict[str, OwnerLimits] | None = None, nodes: Iterable[str] = (NODE,)
) -> dict[str, int]:
    """Decide, and return the milli of each pod."""
    _divide(snapshot, limits)
    for node in nodes:
        apply(snapshot, decide(snapshot, node))
        assert decide(snapshot, node) == (), "deciding again changed something"
    return {state.uid: state.has for node in nodes for state in snapshot.pods(node)}


def test_two_users_share_what_is_free() -> None:
    """Each step goes to the user who would have least after it, whatever they wish and who came first."""
    pods = [*_of("ann", pod("a", wants=4)), *_of("bob", pod("b", wants=2, ticket=9))]
    assert _served(world(4, pods)) == {"a": 2000, "b": 2000}


def test_pods_of_one_user_count_together() -> None:
    """Two pods get what one would get: each step counts for all pods of the user."""
    pods = [*_of("ann", pod("a", wants=2), pod("c", wants=2)), *_of("bob", pod("b", wants=4))]
    found = _served(world(4, pods))
    assert (found["a"] + found["c"], found["b"]) == (2000, 2000)


def test_what_users_have_on_other_nodes_counts() -> None:
    """The share is that of the whole cluster."""
    pods = [*_of("ann", pod("a", wants=1, node="n"), pod("c", wants=2, has=[10, 11], node="m"))]
    pods += _of("bob", pod("b", wants=1, node="n"))
    assert _served(cluster({"n": 1, "m": 2}, pods), nodes=["n"]) == {"a": 0, "b": 1000}


ORDER: dict[str, tuple[OwnerLimits, dict[str, object], dict[str, int]]] = {
    "a weight of two gets twice as much": (OwnerLimits(weight=2), {"wants": 6}, {"a": 4000, "b": 2000}),
    "what is guaranteed comes first": (OwnerLimits(guaranteed=5000), {"wants": 6}, {"a": 5000, "b": 1000}),
    "a maximum": (OwnerLimits(Maximum(1000)), {"wants": 6}, {"a": 1000, "b": 5000}),
    "a higher priority": (OwnerLimits(), {"wants": 6, "priority": 1}, {"a": 6000, "b": 0}),
    "shares": (OwnerLimits(), {"wants": 1, "each": 500}, {"a": 1000, "b": 4000}),
    "a remainder": (OwnerLimits(), {"wants": 2.5}, {"a": 2500, "b": 3000}),
    "one island is one step": (OwnerLimits(), {"wants": 5, "topology": "island"}, {"a": 2000, "b": 4000}),
}


@pytest.mark.parametrize("name", ORDER)
def test_order_of_users(name: str) -> None:
    """Six GPUs between ann and bob, who wishes six, by what their limits say."""
    limits, fields, expected = ORDER[name]
    pods = [*_of("ann", pod("a", **fields)), *_of("bob", pod("b", wants=6))]  # type: ignore[arg-type]
    assert _served(world(inventory(6, island=6), pods), {"ann": limits}) == expected


def test_steps_together_are_arranged_as_one() -> None:
    """Two GPUs come from one island, though the first step alone would take the GPU that belongs to none."""
    gpus = [gpu(0), gpu(1, island="x"), gpu(2, island="x")]
    snapshot = world(gpus, _of("ann", pod("a", wants=2)))
    _served(snapshot)
    state = snapshot.pod("a")
    assert state is not None
    assert by_index(state.allocated) == {1: 1000, 2: 1000}


@pytest.mark.parametrize("most", [0, 500, 1000])
def test_step_that_the_limit_of_a_model_cuts_is_the_last(most: int) -> None:
    """The line comes to its end where a limit permits fewer GPUs of a model than a wish needs."""
    pods = [*_of("ann", pod("a", wants=4, has=[], ticket=1)), *_of("bob", pod("b", wants=1, has=[], ticket=2))]
    limits = {"ann": OwnerLimits(models={"A100": Maximum(most)}), "bob": OwnerLimits()}
    found = _served(world(inventory(4, models=["A100", "H100"]), pods), limits)
    assert found["b"] == 1000
    assert found["a"] <= 2000 + most


def test_equal_users_are_served_by_ticket() -> None:
    """The last GPU goes to the one who asked first."""
    pods = [*_of("ann", pod("a", wants=1, has=[], ticket=2)), *_of("bob", pod("b", wants=1, has=[], ticket=1))]
    assert _served(world(inventory(1), pods)) == {"a": 0, "b": 1000}


shares = st.tuples(st.integers(0, 40_000_000), st.integers(1, MAX_WEIGHT))


@given(shares, shares)
@example((1, 1000), (1, 999))
@example((1001, 999), (1002, 1000))
def test_share_sorts_like_the_fraction(one: tuple[int, int], other: tuple[int, int]) -> None:
    """Whole numbers stand for the owners' shares: of two, the smaller fraction is the smaller number."""
    assert (share(*one) < share(*other)) == (Fraction(*one) < Fraction(*other))
    assert (share(*one) == share(*other)) == (Fraction(*one) == Fraction(*other))


def test_order_of_one_wish() -> None:
    """The key is exact: precedence, priority, and the owner's share after the next step."""
    assert OwnerStanding(2000, 1000, 3).order(4, 1000) == (0, -4, share(3000, 3))
    assert OwnerStanding(500, 1000, 7).order(0, 500) == (-2, 0, share(1000, 7))
    assert OwnerStanding(500, 1000, 7).order(0, 501) == (-1, 0, share(1001, 7))
    waiting = replace(pod("a", wants=2, has=[0], ticket=5), standing=OwnerStanding(1000, 0, 2))
    assert waiting.rank == (0, 0, share(2000, 2), False, 5, 0.0, "a")
    assert replace(waiting, overdue=True).rank == (-3, 0, 0, False, 5, 0.0, "a")
    assert replace(pod("a"), standing=OwnerStanding()).rank == replace(pod("a")).rank
    fresh = replace(new("a", wants=2, ticket=5), standing=OwnerStanding(1000))
    assert fresh.rank[:3] == (0, 0, share(3000, 1)), "a new pod is served as a whole"


STEPS = [
    (wish(3), 0, 1000),
    (wish(3), 1500, 2000),
    (wish(2.5), 2000, 2500),
    (wish(0.3), 0, 300),
    (wish(2, each=500), 700, 1000),
    (wish(1), 1500, 1000),
    (wish(3, topology="switch"), 0, 3000),
    (wish(3, topology="any"), 0, 1000),
]


@pytest.mark.parametrize(("asked", "has", "amount"), STEPS)
def test_next_amount(asked: object, has: int, amount: int) -> None:
    """The next step ends at the next whole GPU or share; for what is served as a whole, at the end."""
    assert isinstance(asked, type(wish(1)))
    assert next_amount(asked, has, whole=False) == amount
    assert next_amount(asked, has, whole=True) == asked.milli


def test_only_waiting_pods_have_a_standing() -> None:
    """A pod that has its wish, or all that its limit permits, changes with no other pod of its owner."""
    pods = _of("ann", pod("a", wants=1, has=[0]), pod("b", wants=3, has=[1]), pod("c", wants=1, gone=True))
    found = terms(world(4, pods), pods, OwnerLimits(), stored=None, now=0, fair=True).pods
    assert [found[uid].standing for uid in "abc"] == [None, OwnerStanding(2000), None]
    limited = terms(world(4, pods), pods, OwnerLimits(Maximum(2000)), stored=None, now=0, fair=True).pods
    assert limited["b"].standing is None
    assert terms(world(4, pods), pods, OwnerLimits(), stored=None, now=0).pods["b"].standing is None


def test_pod_that_only_changes_its_shares_comes_first() -> None:
    """Two halves become a whole: its owner has no more then, so no share is compared."""
    halves = _of("ann", pod("a", wants=1, has={0: 500, 1: 500}), pod("x", wants=1, each=500, has={0: 500, 1: 500}))
    assert _served(world(3, [*halves, *_of("bob", pod("b", wants=1))])) == {"a": 1000, "x": 1000, "b": 0}


def test_big_wish_keeps_nothing_back_until_it_has_waited_too_long() -> None:
    """Small wishes pass a new pod that does not fit; once it is overdue, what comes free is kept for it."""
    busy = _of("cid", pod("x", wants=1, has=[0]))
    big = new("a", wants=2, ticket=1, on=NODE, offered=[NODE], priority=1)
    small = pod("b", wants=1)
    for overdue, expected in ((False, 1000), (True, 0)):
        snapshot = cluster({NODE: 2}, [*busy, *_of("ann", replace(big, overdue=overdue)), *_of("bob", small)])
        _divide(snapshot)
        apply(snapshot, decide(snapshot, NODE))
        state = snapshot.pod("b")
        assert state is not None
        assert state.has == expected


def test_overdue_pods_come_before_guarantees() -> None:
    """First come, first served among requests that have waited too long, whichever their owners."""
    late = [*_of("ann", replace(pod("a", wants=2, has=[], ticket=1), overdue=True))]
    late += _of("bob", pod("b", wants=2, priority=9))
    assert _served(world(2, late), {"bob": OwnerLimits(guaranteed=2000)}) == {"a": 2000, "b": 0}


def test_new_pod_in_a_fair_line_fits_by_its_owner() -> None:
    """If another pod waits, the standing of its owner decides whether a new pod fits, not its place alone."""
    pods = [pod("x", wants=1, has=[0], node="n"), *_of("ann", pod("a", wants=3, node="n"))]
    pods += _of("bob", pod("b", wants=1, has=[12], node="m"), new("bob", wants=1)) + _of("cid", new("cid", wants=1))
    snapshot = cluster({"n": 3, "m": 3}, pods)
    _divide(snapshot)
    fits = {
        uid: bool(filter_nodes(snapshot, state, ("n",)).fitting)
        for uid in ("bob", "cid")
        if (state := snapshot.pod(uid))
    }
    assert fits == {"bob": False, "cid": True}, "bob has one elsewhere, so ann's second step comes before"


def test_blocked_pod_keeps_nothing_back() -> None:
    """A new pod that waits for something other than GPUs lets others pass."""
    blocked = new("a", wants=1, ticket=1, on=NODE, blocked=True)
    snapshot = cluster({NODE: 1}, [*_of("ann", blocked), *_of("bob", pod("b", wants=1))])
    _divide(snapshot)
    apply(snapshot, decide(snapshot, NODE))
    state = snapshot.pod("b")
    assert state is not None
    assert by_index(state.allocated) == {0: 1000}


def test_long_fair_line_is_decided_in_steps() -> None:
    """Other tasks get turns while many pods are served."""
    pods = [one for number in range(600) for one in _of(str(number), pod(str(number), wants=1))]
    snapshot = world(2, pods)
    _divide(snapshot)
    assert sum(1 for _ in decide_in_steps(snapshot, NODE)) > 3


@pytest.mark.uncounted
@given(
    data=st.data(),
    gpus=st.integers(2, 4),
    patience=st.integers(1, 6),
    longest=st.integers(1, 4),
)
def test_no_wish_waits_longer_than_patience_and_the_longest_hold(
    data: st.DataObject, gpus: int, patience: int, longest: int
) -> None:
    """However many small wishes come, a new pod that needs the whole node starts: what comes free after the patience is
    kept for it, and all that others have then is given back within the longest hold.
    """
    snapshot = cluster({NODE: gpus})
    big = replace(new("big", wants=gpus, offered=[NODE]), owner=_user("big"))
    ends: dict[str, int] = {}
    for now in range(patience + longest + 2):
        for uid in [uid for uid, end in ends.items() if end <= now]:
            snapshot.remove_pod(uid)
            del ends[uid]
        if now == 1:
            snapshot.put_pod(big)
        for number in range(data.draw(st.integers(0, gpus))):
            uid = f"{now}-{number}"
            small = replace(pod(uid, wants=1), owner=_user(data.draw(st.sampled_from("abc"))), created=float(now))
            snapshot.put_pod(small)
            ends[uid] = now + data.draw(st.integers(1, longest))
        state = snapshot.pod("big")
        if state and state.pending:
            snapshot.put_pod(replace(state, overdue=now >= 1 + patience))
        if _starts(snapshot):
            return
    raise AssertionError("the big one still waits")


def _starts(snapshot: ClusterSnapshot) -> bool:
    """Decide all, carry it out at once, and tell whether the big pod starts."""
    _divide(snapshot)
    state = snapshot.pod("big")
    if state:
        if filter_nodes(snapshot, state, (NODE,)).fitting:
            return isinstance(allocate(snapshot, state, NODE), Allocated)
        change = nominate(snapshot, state, (NODE,), POLICY)
        apply(snapshot, [change] if change else [])
    apply(snapshot, decide(snapshot, NODE))
    for one in snapshot.pods(NODE):
        after = one.allocated or Allocated(0)
        snapshot.put_pod(replace(one, attached=Attached(1, after.shares, revision=after.revision)))
    return False
