"""A share that is revoked before its node reported that it opened it: not free until the node has followed."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_node.agent.rules.plan import Observation, plan
from jupyter_gpu_scheduler.rules.queue.decide import decide
from tests.builders import allocated, apply, attached, decided, pod, shares, uuid, world

UIDS = ("a", "b", "c")


def test_late_record_contradicts_no_other() -> None:
    """The node opens what was decided, the wish is taken back, and only then the node's record arrives."""
    snapshot = world(1, [pod("a", wants=0, has=[0], attaches=[]), pod("b", wants=1)])
    assert decided(snapshot) == {"a": {}, "b": {}}
    a = snapshot.pod("a")
    assert a
    snapshot.put_pod(replace(a, attached=attached([0])))  # of the revision before
    assert decided(snapshot) == {"a": {}, "b": {}}
    snapshot.put_pod(replace(a, attached=attached([], draining=[0], revision=1)))
    assert decided(snapshot) == {"a": {}, "b": {}}
    snapshot.put_pod(replace(a, attached=attached([], revision=1)))
    assert decided(snapshot) == {"a": {}, "b": {0: 1000}}


def test_share_is_revoked_until_the_node_follows() -> None:
    """So is a part of a share; shares that were revoked before and are not followed yet stay revoked."""
    before = allocated({0: 1000, 1: 500})
    first = before.with_shares(shares({0: 500, 1: 500}), None)
    assert (first.revision, first.revoked) == (1, shares({0: 1000}))
    second = first.with_shares(shares({0: 500}), attached([0, 1]))
    assert (second.revision, set(second.revoked)) == (2, set(shares({0: 1000, 1: 500})))
    followed = first.with_shares(shares({0: 500}), attached([0, 1], revision=1))
    assert (followed.revision, followed.revoked) == (2, shares({1: 500}))
    assert followed.pending(attached(revision=1)) == shares({1: 500})
    assert followed.pending(attached(revision=2)) == ()


def test_grant_revokes_nothing() -> None:
    """More of a GPU or another GPU is no new revision, so the node writes no more than it would."""
    assert allocated([0]).with_shares(shares([0, 1]), None) == allocated([0, 1])
    assert allocated({0: 500}).with_shares(shares([0]), None) == allocated([0])


class Slow(RuleBasedStateMachine):
    """Wishes, decisions, and nodes whose rules are in force long before their records are written."""

    def __init__(self) -> None:
        super().__init__()
        self.snapshot = world(3, [pod(uid) for uid in UIDS])
        self.in_force: dict[str, Allocated] = {}  # what each pod can open, by the decision that its rules follow
        self.unsent: dict[str, Attached] = {}

    @rule(uid=st.sampled_from(UIDS), gpus=st.integers(0, 3))
    def wish(self, uid: str, gpus: int) -> None:
        """Another number of GPUs."""
        before = self.snapshot.pod(uid)
        assert before
        generation = before.requested.generation + 1 if before.requested else 1
        self.snapshot.put_pod(replace(before, requested=Requested(generation, Wish(gpus * 1000))))

    @rule()
    def decide(self) -> None:
        """The scheduler's turn."""
        apply(self.snapshot, decide(self.snapshot, "node"))

    @rule(uid=st.sampled_from(UIDS))
    def open(self, uid: str) -> None:
        """Make the node's rules follow the decision, with no record of it."""
        state = self.snapshot.pod(uid)
        if state and state.allocated:
            self.in_force[uid] = state.allocated
            allowed = frozenset(share.uuid for share in state.allocated.shares)
            self.unsent[uid] = plan(state.allocated, state.attached, Observation(allowed)).attached

    @rule(uid=st.sampled_from(UIDS))
    def record(self, uid: str) -> None:
        """Write the node's rules into the record."""
        state = self.snapshot.pod(uid)
        if state and uid in self.unsent:
            self.snapshot.put_pod(replace(state, attached=self.unsent.pop(uid)))

    @invariant()
    def a_gpu_has_one_owner(self) -> None:
        """Rule 1, by the decisions, by the records and by what can be opened, all at once."""
        owners: dict[str, set[str]] = {uuid(index): set() for index in range(3)}
        for uid in UIDS:
            state = self.snapshot.pod(uid)
            assert state
            can = self.in_force[uid].shares if uid in self.in_force else ()
            told = state.attached.shares if state.attached else ()
            promised = state.allocated.shares if state.allocated else ()
            for share in (*can, *told, *promised):
                assert isinstance(share, GpuShare)
                owners[share.uuid].add(uid)
        assert all(len(some) < 2 for some in owners.values()), owners


TestSlow = Slow.TestCase
