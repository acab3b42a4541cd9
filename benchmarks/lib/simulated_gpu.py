"""Programs on one GPU with an arbiter, in simulated time: for tests and figures. Pure.

A program has jobs, each some GPU time in kernels of one length, and keeps a few kernels in flight. As the gate does, it
asks when it has work, starts what fits before its turn ends, drains when it is revoked, and gives the GPU back when it
has nothing left.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count

from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.ledger import TimeAccount
from jupyter_gpu_node.shares.rules.turns.order import TurnOrdering
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.turns.turn_orders import TurnGrant, TurnOrder, TurnRevoke


@dataclass(frozen=True, slots=True)
class SimulatedProgram:
    """A simulated program. ``jobs`` are (moment, GPU time), by moment; microseconds."""

    milli: int
    jobs: Sequence[tuple[int, int]]
    kernel: int = 1_000
    depth: int = 2
    """Kernels in flight: what is in flight cannot be taken back."""
    silent: bool = False
    """Whether it does not say for how long it will need the GPU."""
    lies: bool = False
    """Whether it says that the GPU did nothing in its turns: that all was change of hands."""
    again: int | None = None
    """Whenever it has nothing left to do, its last job comes again so much later: training that waits for results."""
    lead: int | None = None
    """Time before the end of a kernel at which the next one is put in flight; None: ``depth`` are at any time."""


@dataclass(frozen=True, slots=True)
class ProgramUse:
    """The result of one program."""

    turns: tuple[tuple[int, int], ...]
    """Start and end of each time it had the GPU."""
    waits: tuple[int, ...]
    """Wait of each job that began: from its moment until its first kernel runs."""
    times: tuple[int, ...]
    """Duration of each job that ended: from its moment until its last kernel ended."""
    work: int
    """GPU time in kernels."""
    account: TimeAccount


@dataclass(slots=True)
class _ProgramState:
    program: SimulatedProgram
    queue: deque[tuple[int, int]] = field(default_factory=deque)
    """Moment of each job in hand, and the time that it still needs."""
    begun: bool = False
    """Whether the first of them has run."""
    start: int = 0
    """Time when it could run its next kernel."""
    plan: int = 0
    """Number of the last plan of when it gives back; only that one holds."""
    turns: list[tuple[int, int]] = field(default_factory=list)
    waits: list[int] = field(default_factory=list)
    times: list[int] = field(default_factory=list)
    work: int = 0
    before: int = 0
    """Work before this turn."""

    @property
    def backlog(self) -> int:
        return sum(left for _, left in self.queue)


class Simulation:
    """The simulation of programs on one GPU. ``handover``: time from an arbiter's order until a program acts on it."""

    def __init__(
        self,
        programs: Mapping[str, SimulatedProgram],
        timing: Timing,
        *,
        handover: int = 0,
        order: Callable[[Timing], TurnOrdering] = TurnOrdering,
    ) -> None:
        self.arbiter = Arbiter(timing, 0, order)
        self._handover = handover
        self._states = {name: _ProgramState(program) for name, program in programs.items()}
        self._events: list[tuple[int, int, Callable[[int], None]]] = []
        self._number = count()
        self._holder: str | None = None
        self._until = 0
        self._current = self._ended = 0
        """Numbers of the present turn and of the last one that was given back: an order about that one is late."""
        self._wake: int | None = None
        self.arbiter.put({name: program.milli for name, program in programs.items()}, 0)
        for name, program in programs.items():
            self._arrive(name, iter(program.jobs))

    def run(self, end: int) -> Mapping[str, ProgramUse]:
        """Run everything up to ``end``; return the result of each program."""
        while self._events and self._events[0][0] <= end:
            now, _, act = heapq.heappop(self._events)
            act(now)
            self._set_alarm()
        if self._holder:
            last = self._states[self._holder]
            last.turns[-1] = (last.turns[-1][0], end)
        return {
            name: ProgramUse(
                tuple(one.turns), tuple(one.waits), tuple(one.times), one.work, self.arbiter.account(name, end)
            )
            for name, one in self._states.items()
        }

    def at(self, moment: int, act: Callable[[Arbiter, int], Iterable[TurnOrder]]) -> None:
        """Call a function on the arbiter at that moment, for example to resize a share."""
        self._plan(moment, lambda now: self._follow(act(self.arbiter, now), now))

    # --- events -------------------------------------------------------------------------------------------------------

    def _plan(self, moment: int, act: Callable[[int], None]) -> None:
        heapq.heappush(self._events, (moment, next(self._number), act))

    def _set_alarm(self) -> None:
        wake = self.arbiter.wake
        if wake is not None and wake != self._wake:
            self._wake = wake
            self._plan(wake, lambda now: self._alarm(now, wake))

    def _alarm(self, now: int, meant: int) -> None:
        if self._wake == meant:
            self._wake = None
            self._follow(self.arbiter.tick(now), now)

    def _arrive(self, name: str, jobs: Iterable[tuple[int, int]]) -> None:
        following = iter(jobs)
        if (job := next(following, None)) is not None:
            moment, work = job

            def come(now: int) -> None:
                self._job(name, now, work)
                self._arrive(name, following)

            self._plan(moment, come)

    def _job(self, name: str, now: int, work: int) -> None:
        one = self._states[name]
        one.queue.append((now, work))
        if self._holder != name:
            if len(one.queue) == 1:
                self._follow(self.arbiter.ask(name, now, self._want(one)), now)
        elif one.start <= now:  # it has the GPU and perhaps nothing to do: then the work begins now
            self._work(one, now)
            self._give_back_at(name, self._last(one))

    def _follow(self, orders: Iterable[TurnOrder], now: int) -> None:
        for order in orders:
            if isinstance(order, TurnGrant):
                self._plan(now + self._handover, lambda at, order=order: self._granted(order, at))  # type: ignore[misc]
            elif isinstance(order, TurnRevoke):
                self._plan(now + self._handover, lambda at, order=order: self._revoked(order, at))  # type: ignore[misc]

    def _granted(self, order: TurnGrant, now: int) -> None:
        if order.turn <= self._ended:
            return
        one = self._states[order.share]
        self._until, self._current = order.until, order.turn
        if self._holder != order.share:
            assert self._holder is None, "two have the GPU"
            self._holder, one.start = order.share, now
            one.turns.append((now, now))
        else:
            self._work(one, now)
        self._give_back_at(order.share, self._last(one))

    def _revoked(self, order: TurnRevoke, now: int) -> None:
        one = self._states[order.share]
        if order.turn > self._ended:
            kernel = one.program.kernel
            lead = one.program.lead
            more = one.program.depth if lead is None else 1
            in_flight = ((now - one.start + min(lead or 0, kernel)) // kernel + more) * kernel
            self._give_back_at(order.share, max(now, one.start + min(one.backlog, in_flight)))

    def _last(self, one: _ProgramState) -> int:
        """Return when what fits into the turn has run: whole kernels, at least one."""
        kernel = one.program.kernel
        fits = max(1, (self._until - one.start) // kernel) * kernel
        return one.start + min(one.backlog, fits)

    def _give_back_at(self, name: str, moment: int) -> None:
        one = self._states[name]
        one.plan += 1
        plan = one.plan

        def give(now: int) -> None:
            if one.plan == plan:
                self._work(one, now)
                one.turns[-1] = (one.turns[-1][0], now)
                self._holder, self._ended = None, self._current
                want, work = self._want(one) if one.queue else None, 0 if one.program.lies else one.work - one.before
                one.before = one.work
                self._follow(self.arbiter.release(name, now, want, work), now)
                if not one.queue and one.program.again is not None:
                    self._plan(now + one.program.again, lambda at: self._job(name, at, one.program.jobs[-1][1]))

        self._plan(moment, give)

    def _want(self, one: _ProgramState) -> int:
        return 0 if one.program.silent else one.backlog

    def _work(self, one: _ProgramState, now: int) -> None:
        """Account for what ran since ``start``."""
        while one.queue and one.start < now:
            moment, left = one.queue[0]
            if not one.begun:
                one.begun = True
                one.waits.append(one.start - moment)
            done = min(left, now - one.start)
            one.work += done
            one.start += done
            one.queue[0] = (moment, left - done)
            if done == left:
                one.queue.popleft()
                one.begun = False
                one.times.append(one.start - moment)
        one.start = max(one.start, now) if not one.queue else one.start


def hog(milli: int, seconds: float, kernel: int = 1_000, depth: int = 2, lead: int | None = None) -> SimulatedProgram:
    """Return a program that always has work."""
    return SimulatedProgram(milli, ((0, round(seconds * 2_000_000)),), kernel, depth, silent=True, lead=lead)


def bursty(
    milli: int, moments: Iterable[int], work: int, kernel: int = 1_000, depth: int = 2, *, silent: bool = True
) -> SimulatedProgram:
    """Return a program that wants ``work`` at each of these moments."""
    return SimulatedProgram(milli, tuple((moment, work) for moment in moments), kernel, depth, silent)
