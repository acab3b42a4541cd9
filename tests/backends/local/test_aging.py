"""On one machine, too, no pod is passed over for longer than was set: each server decides for itself alone."""

from __future__ import annotations

import random
import time
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.backends.local.pod_states import states
from jupyter_gpu.backends.local.records.other_pods import NODE, OtherPod
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model.annotations import Attached
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_scheduler.rules.queue.aging import is_overdue, stamped, waits_since
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import allocated, gpu, requested
from tests.scheduler.queue.test_aging import Job, jobs

from .stage import Stage, wait_for

PATIENCE = 20


class Machine:
    """Servers that know each other by their records only, in simulated time: a tick is a minute."""

    def __init__(self, count: int, seed: int) -> None:
        self.gpus = tuple(gpu(index) for index in range(count))
        self.records: dict[str, Record] = {}
        self.now = 0
        self.asked: dict[str, int] = {}
        self.served: dict[str, int] = {}
        self.passed_over: list[str] = []
        self._chance = random.Random(seed)

    def tick(self, named: dict[str, Job]) -> None:
        """Servers leave, others come, and each decides for itself, in any order, until nothing changes."""
        for uid, job in named.items():
            if self.served.get(uid, self.now) + job.keeps <= self.now:
                self.records.pop(uid, None)
            if job.comes == self.now:
                self.asked[uid] = self.now
                wish = requested(job.gpus, priority=job.priority)
                self.records[uid] = Record(uid, ProcessId(1, 1), "boot", 1, requested=wish)
        before: Any = None
        while before != self.records:
            before = dict(self.records)
            for uid in self._chance.sample(sorted(self.records), len(self.records)):
                self._decide(uid)
        late = [uid for uid in self.records if self._waits(uid) and self.now - self.asked[uid] > PATIENCE]
        gained = [self.asked[uid] for uid, when in self.served.items() if when == self.now]
        self.passed_over += [f"{uid} at {self.now}" for uid in late if self.asked[uid] < max(gained, default=-1)]
        self.now += 1

    def _waits(self, uid: str) -> bool:
        allocated = self.records[uid].allocated
        return allocated is not None and allocated.ticket is not None

    def _decide(self, uid: str) -> None:
        record = self.records[uid]
        overdue = partial(is_overdue, patience=PATIENCE, now=self.now)
        others = [OtherPod(one, 0, dead=False) for name, one in self.records.items() if name != uid]
        mine = {share.uuid: share.milli for share in record.allocated.shares} if record.allocated else {}
        me = PodState(uid, NODE, record.requested, record.allocated, record.attached)
        snapshot = ClusterSnapshot()
        snapshot.put_node(NODE, self.gpus)
        decided = replace(me, attached=None)
        for state in (replace(me, overdue=overdue(record.allocated)), *states(others, decided, self.gpus, overdue)):
            snapshot.put_pod(state)
        after = next((found.allocated for found in decide(snapshot, NODE) if found.uid == uid), record.allocated)
        if after is not None:
            after = stamped(after, self.now)
            attached = Attached(1, after.shares, revision=after.revision)
            self.records[uid] = record._replace(allocated=after, attached=attached)
            if len(after.shares) > len(mine):
                self.served.setdefault(uid, self.now)


@given(count=st.integers(3, 4), coming=st.lists(jobs, max_size=10), seed=st.integers(0, 2**16))
def test_no_server_is_passed_over_for_longer_than_the_patience(count: int, coming: list[Job], seed: int) -> None:
    """A server that waited so long gets nothing later than one that asked after it; in the end all are served."""
    machine, named = Machine(count, seed), {f"p{number:02}": job for number, job in enumerate(coming)}
    while machine.now <= 40 or len(machine.served) < len(named):
        machine.tick(named)
        assert machine.now < 60 + 16 * len(coming), "somebody is never served"
    assert machine.passed_over == []


def test_higher_priorities_go_first_no_longer_than_the_patience() -> None:
    """One GPU, and each minute a server comes that is more important and stays for a minute."""
    coming = {f"p{number:02}": Job(number, 1, 9, 1, starts=False) for number in range(60)}
    machine = Machine(1, 0)
    for _ in range(70):
        machine.tick({"patient": Job(1, 1, 0, 1, starts=False), **coming})
    assert PATIENCE <= machine.served["patient"] <= PATIENCE + 3
    assert len(machine.served) == 61


@pytest.mark.root
def test_overdue_server_gets_a_withheld_gpu_by_itself(stage: Stage) -> None:
    """Nothing happens on the machine meanwhile; and the time is the machine's since its start, which no user sets."""
    stage.gpus = 1
    owner, patient, important = (stage.server(patience=5.0) for _ in range(3))
    owner.ask("request", milli=1000)
    began = time.clock_gettime(time.CLOCK_BOOTTIME)
    assert patient.ask("request", milli=500)["phase"] == "Waiting"
    assert important.ask("request", milli=1000, priority=9)["phase"] == "Waiting"
    owner.ask("request", milli=500)
    assert patient.ask("view")["amounts"]["allocated"] == 0 or time.clock_gettime(time.CLOCK_BOOTTIME) > began + 4
    wait_for(lambda: patient.ask("view")["phase"] == "Ready", "the one that waited long to be served")
    assert time.clock_gettime(time.CLOCK_BOOTTIME) >= int(began) + 5
    assert important.ask("view")["amounts"]["allocated"] == 0


def test_wish_from_the_future_is_not_overdue() -> None:
    """A record may name any time; one of this boot names none that is still to come."""
    asked = stamped(allocated(ticket=1), 1000)
    assert waits_since(asked) == 1000
    assert not is_overdue(asked, PATIENCE, 10)
    assert not is_overdue(None, PATIENCE, 10**9)
