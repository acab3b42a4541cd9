"""No pod is overtaken after the patience has passed, whatever the others' priorities; and the cap on priorities."""

from __future__ import annotations

from dataclasses import dataclass, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.queue.aging import SINCE, is_overdue, overdue_at, stamped, waits_since
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import HIGHEST, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import NODE, allocated, cluster, new, pod, requested, world

PATIENCE = 20


@dataclass(frozen=True)
class Job:
    """A pod that comes, wants whole GPUs, keeps for a time what it gets, all of it or a part, and goes."""

    comes: int
    gpus: int
    priority: int
    keeps: int
    starts: bool
    """A new pod, which starts with all of it; else one that runs and asks."""


class Time:
    """One node in simulated time: a tick is a minute, in which all that is decided is carried out."""

    def __init__(self, gpus: int, patience: int) -> None:
        self.snapshot: ClusterSnapshot = cluster({NODE: gpus})
        self.patience = patience
        self.now = 0
        self.asked: dict[str, int] = {}
        self.served: dict[str, int] = {}
        self.passed_over: list[str] = []
        self._late: set[str] = set()

    def tick(self, jobs: dict[str, Job]) -> None:
        """Remove the pods that are done, let new ones ask, and have the scheduler decide."""
        for uid, job in jobs.items():
            if self.served.get(uid, self.now) + job.keeps <= self.now and self.snapshot.pod(uid):
                self.snapshot.remove_pod(uid)
            if job.comes == self.now:
                self.asked[uid] = self.now
                make = new if job.starts else pod
                self._put(make(uid, wants=job.gpus, priority=job.priority))
        for state in (*self.snapshot.pending(), *self.snapshot.pods(NODE)):
            self._put(state)  # it grows older
        for decision in decide(self.snapshot, NODE):
            state = self._pod(decision.uid)
            after = stamped(decision.allocated, self.now)
            self._put(replace(state, allocated=after, attached=Attached(1, after.shares, revision=after.revision)))
            if decision.added:
                self._gains(decision.uid)
        for state in reversed(self.snapshot.pending()):  # kube-scheduler asks in an order of its own
            self._schedule(state)
        self.passed_over += [f"{uid} at {self.now}" for uid in self._late if self._pod(uid).ticket is not None]
        self._late.clear()
        self.now += 1

    def _schedule(self, state: PodState) -> None:
        found = allocate(self.snapshot, state, NODE)
        assert isinstance(found, Allocated) == bool(filter_nodes(self.snapshot, state, (NODE,)).fitting)
        if isinstance(found, Allocated):
            after = stamped(found, self.now)
            assert SINCE not in after.extra
            self._put(replace(state, node=NODE, allocated=after, attached=Attached(1, after.shares)))
            self._gains(state.uid)
        elif decision := nominate(self.snapshot, state, (NODE,), Policy()):
            self._put(replace(state, allocated=stamped(decision.allocated, self.now)))

    def _gains(self, uid: str) -> None:
        """Note that a pod got GPUs: pods that asked before it, are overdue and still wait were overtaken."""
        self.served.setdefault(uid, self.now)
        for other in (*self.snapshot.pods(NODE), *self.snapshot.pending()):
            waits = other.ticket is not None and self.now - self.asked[other.uid] > self.patience + 1
            if waits and self.asked[other.uid] < self.asked[uid]:
                self._late.add(other.uid)

    def _put(self, state: PodState) -> None:
        self.snapshot.put_pod(replace(state, overdue=is_overdue(state.allocated, self.patience, self.now)))

    def _pod(self, uid: str) -> PodState:
        found = self.snapshot.pod(uid)
        assert found
        return found


jobs = st.builds(
    Job, st.integers(0, 40), st.integers(1, 3), st.integers(0, HIGHEST), st.integers(1, 15), starts=st.booleans()
)


@pytest.mark.uncounted(after=25)
@given(gpus=st.integers(3, 4), coming=st.lists(jobs, max_size=16))
def test_no_pod_is_overtaken_for_longer_than_the_patience(gpus: int, coming: list[Job]) -> None:
    """A pod that has waited so long gets nothing later than any pod that asked after it; in the end all were served."""
    time, named = Time(gpus, PATIENCE), {f"p{number:02}": job for number, job in enumerate(coming)}
    while time.now <= 40 or len(time.served) < len(named):
        time.tick(named)
        assert time.now < 60 + 16 * len(coming), "somebody is never served"
    assert time.passed_over == []
    assert time.served.keys() == named.keys()


@pytest.mark.parametrize("priority", [1, HIGHEST])
@pytest.mark.parametrize("starts", [False, True])
def test_newcomers_of_a_higher_priority_overtake_no_longer_than_the_patience(starts: bool, priority: int) -> None:
    """A pod gets the only GPU after the patience, although each minute a pod of higher priority comes for a minute."""
    coming = {f"p{number:02}": Job(number, 1, priority, 1, starts=False) for number in range(60)}
    time = Time(1, PATIENCE)
    for _ in range(70):
        time.tick({"patient": Job(1, 1, 0, 1, starts), **coming})
    assert PATIENCE <= time.served["patient"] <= PATIENCE + 3
    assert len(time.served) == 61


def test_waiting_time_is_written_once_beside_the_ticket() -> None:
    """The time stays while the ticket does and goes with it; an invalid time counts as none and is written anew."""
    first = stamped(allocated(ticket=3), 100.9)
    assert (waits_since(first), overdue_at(first, 60)) == (100, 160)
    assert stamped(first, 999) == first
    assert stamped(replace(first, ticket=None), 999) == allocated()
    for odd in (None, "yesterday", -1, 1e9, True):
        text = replace(first, extra={SINCE: odd})
        assert waits_since(text) is None
        assert waits_since(stamped(text, 7)) == 7
    assert waits_since(None) is overdue_at(allocated(), 60) is None


def test_priority_above_the_cap_counts_as_the_cap() -> None:
    """The line uses the cap and the user sees it; the wish stays as it was written, and age counts above the cap."""
    bold = replace(pod("bold", wants=1, priority=9), cap=3)
    assert (bold.priority, bold.wished_priority, replace(bold, overdue=True).priority) == (3, 9, HIGHEST)
    snapshot = world(1, [pod("owner", wants=1, has=[0]), pod("plain", wants=1, priority=4), bold])
    messages = {step.uid: (step.allocated.position, step.allocated.message) for step in decide(snapshot, NODE)}
    told = "Priority 9 counts as 3, the highest that this namespace may use."
    assert messages["plain"][0] == 1
    assert "counts" not in messages["plain"][1]
    assert messages["bold"][0] == 2
    assert messages["bold"][1].endswith(told)
    partial = replace(bold, requested=requested(2, priority=9), allocated=allocated([0]))
    step = decide(world(2, [partial, pod("owner", wants=1, has=[1])]), NODE)[0]
    assert step.allocated.message.endswith(told)
    waiting = replace(new("n", wants=1, priority=9), cap=3)
    found = nominate(world(1, [pod("owner", wants=1, has=[0]), waiting]), waiting, (NODE,), Policy())
    assert found
    assert found.allocated.message.endswith(told)
