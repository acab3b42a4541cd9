"""Pods of a fair line that each have a part of what they need: the first that waits too long gets the others' part."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.owner_limits import OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.queue.gains import HAD, gained
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding
from tests.builders import NODE, allocated, apply, pod, requested, uuid, world


class Node:
    """One node whose pods belong to users of the same name; what it gives back is closed at once."""

    def __init__(self, gpus: int, has: dict[str, int], guaranteed: dict[str, int] | None = None) -> None:
        self._guaranteed = guaranteed or {}
        taken = iter(range(gpus))
        pods = [pod(uid, wants=count, has=[next(taken) for _ in range(count)]) for uid, count in has.items()]
        self.snapshot = world(gpus, [replace(state, owner=Owner("User", state.uid)) for state in pods])
        self.settle()

    def settle(self, *, closes: bool = True) -> None:
        """Decide until nothing changes."""
        for _ in range(20):
            for state in self.snapshot.pods(NODE) if closes else ():
                if state.allocated:
                    closed = Attached(0, state.allocated.shares, revision=state.allocated.revision)
                    self.snapshot.put_pod(replace(state, attached=closed))
            self._give_terms()
            changes = decide(self.snapshot, NODE)
            apply(self.snapshot, changes)
            if not changes:
                return
        raise AssertionError("it does not come to rest")

    def _give_terms(self) -> None:
        for state in self.snapshot.pods(NODE):
            limits = OwnerLimits(guaranteed=self._guaranteed.get(state.uid, 0) * 1000)
            found = terms(self.snapshot, [state], limits, stored=None, now=0, fair=True)
            self.snapshot.put_pod(found.pods[state.uid].applied(state))

    def pod(self, uid: str) -> PodState:
        """Return a pod as it is now."""
        state = self.snapshot.pod(uid)
        assert state
        return state

    def set(self, uid: str, *, closes: bool = True, **changes: Any) -> None:
        """Change a pod."""
        self.snapshot.put_pod(replace(self.pod(uid), **changes))
        self.settle(closes=closes)

    def ask(self, uid: str, gpus: int) -> None:
        """Let a user ask for so many GPUs."""
        before = self.pod(uid).requested
        self.set(uid, requested=requested(gpus, generation=before.generation + 1 if before else 1), overdue=False)

    @property
    def has(self) -> dict[str, int]:
        """Return the GPUs of each user."""
        return {state.uid: state.has // 1000 for state in self.snapshot.pods(NODE)}


def _stuck(guaranteed: dict[str, int] | None = None) -> Node:
    """Return four GPUs that ann and bob, in this order, both want; others had them, so each got half."""
    node = Node(4, {"others": 4, "ann": 0, "bob": 0}, guaranteed)
    node.ask("ann", 4)
    node.ask("bob", 4)
    node.ask("others", 0)
    assert node.has == {"others": 0, "ann": 2, "bob": 2}
    return node


def test_first_pod_that_waits_too_long_gets_the_other_part() -> None:
    """The other keeps its place, gets nothing meanwhile, and all when the first is done."""
    node = _stuck()
    ticket = node.pod("bob").ticket
    node.set("ann", overdue=True)
    assert node.has == {"others": 0, "ann": 4, "bob": 0}
    assert node.pod("bob").ticket == ticket
    node.ask("ann", 0)
    assert node.has == {"others": 0, "ann": 0, "bob": 4}
    assert all(HAD not in state.allocated.extra for state in node.snapshot.pods(NODE) if state.allocated)


def test_later_pod_takes_nothing() -> None:
    """However long it waits, the one with the lower ticket is the one that goes on."""
    node = _stuck()
    node.set("bob", overdue=True)
    assert node.has == {"others": 0, "ann": 2, "bob": 2}


def test_what_closes_for_it_is_not_taken_again() -> None:
    """Until it is closed, the pod that gives it back holds it and gets no more of it."""
    node = _stuck()
    node.set("ann", overdue=True, closes=False)
    assert node.has == {"others": 0, "ann": 2, "bob": 0}
    assert node.pod("bob").holds == 2000
    node.settle()
    assert node.has == {"others": 0, "ann": 4, "bob": 0}


def test_nothing_is_taken_in_vain() -> None:
    """While a third user works on some of the GPUs, all keep what they have."""
    node = Node(4, {"others": 3, "cid": 1, "ann": 0, "bob": 0})
    node.ask("ann", 4)
    node.ask("bob", 4)
    node.ask("others", 0)
    assert node.has == {"others": 0, "cid": 1, "ann": 2, "bob": 1}
    node.set("ann", overdue=True)
    assert node.has == {"others": 0, "cid": 1, "ann": 2, "bob": 1}
    node.ask("cid", 0)
    assert node.has == {"others": 0, "cid": 0, "ann": 4, "bob": 0}


def test_pod_keeps_what_it_had_before_it_waited() -> None:
    """Only what came since is taken."""
    node = Node(4, {"others": 3, "bob": 1, "ann": 0})
    node.ask("ann", 3)
    node.ask("bob", 4)
    node.ask("others", 0)
    assert node.has == {"others": 0, "bob": 2, "ann": 2}
    node.set("ann", overdue=True)
    assert node.has == {"others": 0, "bob": 1, "ann": 3}


def test_pod_keeps_what_is_guaranteed() -> None:
    """No part of the guarantee is taken, though both wait then."""
    node = _stuck({"bob": 2})
    node.set("ann", overdue=True)
    assert node.has == {"others": 0, "ann": 2, "bob": 2}


def test_pod_keeps_what_it_uses() -> None:
    """A GPU that a program has open stays."""
    node = _stuck()
    node.set("bob", busy=frozenset(share.uuid for share in node.pod("bob").allocated.shares))  # type: ignore[union-attr]
    node.set("ann", overdue=True)
    assert node.has == {"others": 0, "ann": 2, "bob": 2}


@pytest.mark.parametrize("extra", [{}, {HAD: "1"}, {HAD: -1}])
def test_gains_that_are_not_recorded_are_none(extra: dict[str, object]) -> None:
    """A pod whose record was spoiled, or written by an older version, gives nothing back."""
    state = pod("a", wants=2, has=[0], ticket=1)
    state = replace(state, standing=OwnerStanding(0, 0, 1), allocated=allocated([0], ticket=1, extra=extra))
    assert not list(gained(state, allocated([0]).shares))


def test_gains_are_the_newest_shares() -> None:
    """All above what the pod had, the last one that came first."""
    state = replace(pod("a", wants=4, has=[0, 1, 2]), standing=OwnerStanding(0, 0, 1))
    state = replace(state, allocated=allocated([0, 1, 2], ticket=1, extra={HAD: 1000}))
    assert [share.uuid for share in gained(state, allocated([0, 1, 2]).shares)] == [uuid(2), uuid(1)]


def test_gains_of_a_pod_outside_a_fair_line_are_none() -> None:
    """By tickets alone only the first has a part."""
    state = pod("a", wants=2, has=[0], ticket=1)
    assert not list(gained(replace(state, allocated=allocated([0], ticket=1, extra={HAD: 0})), allocated([0]).shares))
    found = replace(state, standing=OwnerStanding(0, 0, 1), allocated=allocated([0], ticket=1, extra={HAD: 0}))
    assert [share.uuid for share in gained(found, allocated([0]).shares)] == [uuid(0)]
    assert not list(gained(replace(found, allocated=allocated([0], extra={HAD: 0})), allocated([0]).shares))


@pytest.mark.uncounted(after=25)
@settings(max_examples=30)
@given(st.lists(st.integers(1, 8), min_size=1, max_size=6), st.permutations(range(6)))
def test_all_are_served_though_each_needs_all_that_it_asks_for(wishes: list[int], order: list[int]) -> None:
    """Users who wait for all of their GPUs, work and give them back do so one after the other, never in a circle."""
    users = {f"user-{number}": gpus for number, gpus in zip(order, wishes, strict=False)}
    node = Node(8, {"others": 8, **dict.fromkeys(users, 0)})
    for uid, gpus in users.items():
        node.ask(uid, gpus)
    node.ask("others", 0)
    left = dict(users)
    while left:
        for uid in left:
            node.set(uid, overdue=True)
        done = [uid for uid, gpus in left.items() if node.has[uid] == gpus]
        assert done, f"all wait for each other: {node.has}"
        for uid in done:
            node.ask(uid, 0)
            del left[uid]
