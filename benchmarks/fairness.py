"""How evenly waiting for GPUs is spread over users: the fair line against first come, first served.

`scripts/bench fairness` uses synthetic sessions. Recorded ones, in the form of the Adobe notebook trace that NotebookOS
publishes (sessions with cells, in minutes):

    python -m benchmarks.fairness --trace FILE [--gpus 32]

A session is a user with one notebook on one node. It asks for its GPUs at each cell, runs when it has all of them, and
gives them back; its next cell begins as long after that as in the trace.
"""

from __future__ import annotations

import argparse
import heapq
import json
import random
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_gpu.model.annotations import Attached, Requested, Wish
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.limits.owner_limits import OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .lib.figures import Figure

_COMMAND = "scripts/bench fairness"
_PER_NODE = 8
_PATIENCE = 10.0
"""Minutes, as is the default."""
_LIMITS = OwnerLimits()


@dataclass(frozen=True, slots=True)
class Cell:
    """One run of a cell that needs GPUs; times in minutes."""

    pause: float
    """From the end of the cell before, or from the start of the session's node."""
    runs: float
    gpus: int


@dataclass(frozen=True, slots=True)
class Session:
    """One user's notebook."""

    starts: float
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Waits:
    """Minutes that each user's cells waited, together."""

    minutes: tuple[float, ...]

    @property
    def jain(self) -> float:
        """Jain's index of fairness of the waits (Jain, Chiu, Hawe 1984): 1 if all wait equally, 1/n if one does."""
        squares = sum(wait * wait for wait in self.minutes)
        return sum(self.minutes) ** 2 / (len(self.minutes) * squares) if squares else 1.0

    @property
    def worst(self) -> float:
        """Minutes of the user who waits longest."""
        return max(self.minutes, default=0.0)

    @property
    def mean(self) -> float:
        """Minutes of a user, on average."""
        return sum(self.minutes) / max(1, len(self.minutes))


def run() -> Sequence[Figure]:
    """Measure unfairness (1 less Jain's index), and minutes of the worst and the average user; baseline: by tickets."""
    return figures(_synthetic(60, 0), 24, "synthetic")


def figures(sessions: Sequence[Session], gpus: int, what: str) -> Sequence[Figure]:
    """Return the figures of the fair line, each against first come, first served."""
    fair, tickets = (simulate(sessions, gpus, fair=fair) for fair in (True, False))
    pairs = (
        ("unevenness of waits, 1 less Jain's index", "", 1 - fair.jain, 1 - tickets.jain),
        ("wait of the worst user", "min", fair.worst, tickets.worst),
        ("wait of a user, mean", "min", fair.mean, tickets.mean),
    )
    return [
        Figure(name=f"fairness: {name}, {what}, {gpus} GPUs", unit=unit, value=value, command=_COMMAND, baseline=before)
        for name, unit, value, before in pairs
    ]


def simulate(sessions: Sequence[Session], gpus: int, *, fair: bool) -> Waits:
    """Return the waits of all users on nodes of eight GPUs, each session on the node with the fewest then."""
    return _Cluster(sessions, gpus // _PER_NODE, fair).run()


class _Cluster:
    """Sessions on nodes, from event to event; what happens at one time is decided together."""

    def __init__(self, sessions: Sequence[Session], nodes: int, fair: bool) -> None:
        self._sessions, self._fair = sessions, fair
        self._snapshot = ClusterSnapshot()
        for number in range(nodes):
            name = f"node-{number}"
            self._snapshot.put_node(name, tuple(Gpu(f"GPU-{name}-{i}", i, "H100", 80) for i in range(_PER_NODE)))
        self._nodes = [f"node-{number}" for number in range(nodes)]
        self._events: list[tuple[float, int, int, str]] = []  # time, order, session, what
        self._cell = [0] * len(sessions)
        self._asked = [0.0] * len(sessions)
        self._runs = [False] * len(sessions)
        self._waited = [0.0] * len(sessions)

    def run(self) -> Waits:
        """Simulate until the last cell has run."""
        for number, session in enumerate(self._sessions):
            if session.cells:
                self._at(session.starts, number, "start")
        while self._events:
            now = self._events[0][0]
            touched = set()
            while self._events and self._events[0][0] == now:
                _, _, number, what = heapq.heappop(self._events)
                touched.add(self._happens(now, number, what))
            for node in sorted(touched):
                self._decide(node, now)
        return Waits(tuple(self._waited))

    def _at(self, when: float, number: int, what: str) -> None:
        heapq.heappush(self._events, (when, len(self._events), number, what))

    def _happens(self, now: float, number: int, what: str) -> str:
        """Apply an event; return the node that it concerns."""
        session, uid = self._sessions[number], str(number)
        if what == "start":
            node = min(self._nodes, key=lambda name: len(self._snapshot.pods(name)))
            owner = Owner("User", uid, "hub")
            self._snapshot.put_pod(PodState(uid, node, Requested(1, Wish(0)), owner=owner, created=now))
            self._at(now + session.cells[0].pause, number, "ask")
        elif what == "ask":
            self._asked[number] = now
            self._wish(uid, session.cells[self._cell[number]].gpus)
            self._at(now + _PATIENCE, number, "look")
        elif what == "end":
            self._runs[number] = False
            self._wish(uid, 0)
            self._cell[number] += 1
            if self._cell[number] < len(session.cells):
                self._at(now + session.cells[self._cell[number]].pause, number, "ask")
        pod = self._snapshot.pod(uid)
        assert pod
        return pod.node

    def _wish(self, uid: str, gpus: int) -> None:
        pod = self._snapshot.pod(uid)
        assert pod
        assert pod.requested
        wish = Requested(pod.requested.generation + 1, Wish(gpus * MILLI_PER_GPU))
        self._snapshot.put_pod(replace(pod, requested=wish, overdue=False))

    def _decide(self, node: str, now: float) -> None:
        """Decide a node until nothing changes; cells that have all that they need begin."""
        for pod in self._snapshot.pods(node):
            waits = pod.wished > pod.has and now >= self._asked[int(pod.uid)] + _PATIENCE
            self._snapshot.put_pod(replace(pod, overdue=waits))
        for _ in range(20):
            for pod in self._snapshot.pods(node):
                (found,) = terms(self._snapshot, [pod], _LIMITS, stored=None, now=now, fair=self._fair).pods.values()
                self._snapshot.put_pod(found.applied(pod))
            changes = decide(self._snapshot, node)
            for change in changes:
                state = self._snapshot.pod(change.uid)
                assert state
                attached = Attached(0, change.allocated.shares, revision=change.allocated.revision)
                self._snapshot.put_pod(replace(state, allocated=change.allocated, attached=attached))
            if not changes:
                break
        else:
            raise RuntimeError("the decisions do not come to rest")
        for pod in self._snapshot.pods(node):
            number = int(pod.uid)
            if pod.wished and pod.has == pod.wished and not self._runs[number]:
                self._runs[number] = True
                self._waited[number] += now - self._asked[number]
                self._at(now + self._sessions[number].cells[self._cell[number]].runs, number, "end")


def _synthetic(users: int, seed: int) -> Sequence[Session]:
    """Return sessions of one day: most users run short cells on few GPUs, one in six long ones on many."""
    source = random.Random(seed)
    return [Session(source.uniform(0, 120), tuple(_cells(source, greedy=not user % 6))) for user in range(users)]


def _cells(source: random.Random, *, greedy: bool) -> Iterator[Cell]:
    for _ in range(40 if greedy else 12):
        if greedy:
            yield Cell(source.expovariate(1 / 3), 1 + source.expovariate(1 / 20), source.choice((4, 8)))
        else:
            yield Cell(source.expovariate(1 / 25), 1 + source.expovariate(1 / 5), source.choice((1, 1, 1, 2)))


def read(path: Path) -> Sequence[Session]:
    """Read a recorded trace; cells without GPUs are part of the pauses."""
    return [_session(each) for each in json.loads(path.read_text())["sessions"]]


def _session(recorded: dict[str, object]) -> Session:
    trainings = recorded["trainings"]
    assert isinstance(trainings, list)
    starts = before = float(str(recorded["start_tick"]))
    cells = []
    for each in trainings:
        if each["gpus"]:
            cells.append(Cell(max(0.0, each["start_tick"] - before), each["duration_in_ticks"], each["gpus"]))
            before = each["end_tick"]
    return Session(starts, tuple(cells))


def main() -> int:
    """Print the waits of a recorded trace, for several sizes of the cluster."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.fairness", description=(__doc__ or "").partition("\n")[0]
    )
    parser.add_argument("--trace", type=Path, required=True, help="JSON file with the sessions")
    parser.add_argument("--gpus", type=int, nargs="*", default=[32, 48, 64], help="GPUs of the cluster, in nodes of 8")
    arguments = parser.parse_args()
    sessions = [session for session in read(arguments.trace) if session.cells]
    print(f"{len(sessions)} users, {sum(len(session.cells) for session in sessions)} cells with GPUs")
    print("GPUs  line      Jain's index  worst user, min  mean, min")
    for gpus in arguments.gpus:
        for fair in (False, True):
            found = simulate(sessions, gpus, fair=fair)
            line = "fair" if fair else "tickets"
            print(f"{gpus:4}  {line:8}  {found.jain:12.3f}  {found.worst:15.0f}  {found.mean:9.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
