"""Effect of co-adjustment on a day of notebooks: the GPU work that was done, and how long cells waited.

Four ways to share the same GPUs: fixed shares that are a limit; fixed shares whose unused time goes to others
(work-conserving, what the arbiter does); and co-adjusted ones of both kinds. `scripts/bench elastic` draws a day; on a
recorded one:

    python -m benchmarks.elastic [--trace DIR] [--milli 250] [--notebooks 48] [--seed 0]

A day is computed as a fluid, period by period: a share has what it has a claim to and wants, and perhaps a part of what
is left; a cell that gets less than its pace takes longer, and the next one of its notebook begins later. Periods in
which nothing changes are done in one step. `fluid_error` compares a minute of it with the arbiter, event by event.

As the arbiter is work-conserving, co-adjustment does not make it do more: it decides who has a claim to what others
leave. Time without a claim can be taken back at any moment by the share that has one, and is not there when a burst
needs it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from benchmarks.lib.simulated_gpu import ProgramUse, SimulatedProgram, Simulation, bursty, hog
from jupyter_gpu_node.shares.rules.turns.arbiter import Arbiter
from jupyter_gpu_node.shares.rules.turns.elastic import ElasticState, PeriodUse, adjust
from jupyter_gpu_node.shares.rules.turns.elasticity import Elastic
from jupyter_gpu_node.shares.rules.turns.ledger import TimeAccount
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.turns.turn_orders import TurnOrder

from .lib.day import DAY, Gpu, Notebook, drawn, facts, placed, recorded
from .lib.figures import CannotRunError, Figure, percentile

_COMMAND = "scripts/bench elastic"
_RULES = Elastic()
_TIMING = Timing()
_MINUTE = 60_000_000 // _TIMING.period
"""Periods."""
_HOUR = 60 * _MINUTE * 1000
"""Thousandths of a GPU for a period."""


@dataclass(frozen=True)
class Way:
    """A way to share a GPU."""

    name: str
    elastic: bool
    idle: bool
    """Whether time without a claim goes to shares that want it."""


WAYS = (
    Way("fixed limits", elastic=False, idle=False),
    Way("co-adjusted limits", elastic=True, idle=False),
    Way("fixed, idle time used", elastic=False, idle=True),
    Way("co-adjusted, idle time used", elastic=True, idle=True),
)


@dataclass
class Day:
    """The result of a day; GPU time in hours, waiting in minutes."""

    wanted: float = 0
    done: float = 0
    unclaimed: float = 0
    """The part of it that could have been taken back at any moment."""
    starved: float = 0
    """Shares wanted, and had a right to by what was allocated to them, and did not have."""
    waits: list[float] = field(default_factory=list)
    """The delay of each cell: how much later it ended than with a GPU of its own."""
    unfinished: int = 0

    @property
    def undone(self) -> float:
        """Return the undone part of what was wanted, in percent."""
        return 100 * round(1 - self.done / self.wanted, 6)

    @property
    def loose(self) -> float:
        """Return the part of what was had that was without a claim, in percent."""
        return 100 * self.unclaimed / self.done


# --- a day as a fluid -------------------------------------------------------------------------------------------------


def measure(gpus: Sequence[Gpu], milli: int, way: Way) -> Day:
    """Simulate all GPUs of a day."""
    day = Day()
    for gpu in gpus:
        _Fluid(gpu, milli, way, day).run()
    return day


def rates(claims: Mapping[str, int], wants: Mapping[str, float], *, idle: bool) -> dict[str, float]:
    """Return each share's rate: what it wants of its claim; ``idle``: plus a part of the rest, by claims."""
    got = {name: min(float(claims[name]), wants[name]) for name in claims}
    while idle:
        short = [name for name in got if wants[name] - got[name] > 1e-6]
        left = 1000 - sum(got.values())
        if not short or left < 1e-6:
            break
        whole = sum(claims[name] for name in short)
        least = min((wants[name] - got[name]) / claims[name] for name in short)
        for name in short:
            got[name] += claims[name] * min(least, left / whole)
    return got


class _Running:
    """One notebook on its way through its cells; times in periods."""

    def __init__(self, notebook: Notebook, day: Day) -> None:
        self.start, self.stop = notebook.start * _MINUTE, notebook.stop * _MINUTE
        self._cells = list(notebook.cells)
        self._day = day
        self._left = 0.0
        self._load()

    def _load(self) -> None:
        self._left = self._cells[0].work * _MINUTE if self._cells else 0.0

    def want(self, now: int) -> float:
        cell = self._cells[0] if self._cells else None
        return min(float(cell.pace), self._left) if cell and cell.start * _MINUTE <= now else 0.0

    def next(self, now: int, rate: float) -> int:
        """Return when what it wants may change."""
        if not self._cells or now >= self.stop:
            return DAY * _MINUTE
        start = self._cells[0].start * _MINUTE
        if start > now:
            return min(start, self.stop)
        # the last period of a cell counts by itself: the cell wants less then
        return min(self.stop, now + max(1, int(self._left / rate))) if rate else self.stop

    def run(self, now: int, periods: int, rate: float) -> None:
        if not rate:
            return
        self._left -= rate * periods
        self._day.done += rate * periods / _HOUR
        if self._left < 1e-3:
            self._end(now + periods)
            self._load()

    def _end(self, now: int) -> None:
        cell = self._cells.pop(0)
        self._day.waits.append(max(0.0, now / _MINUTE - cell.start - cell.length))

    def leave(self) -> None:
        """Drop what it has not done by now."""
        self._day.unfinished += len(self._cells)
        while self._cells:
            self._end(self.stop)


class _Fluid:
    """One GPU."""

    def __init__(self, gpu: Gpu, milli: int, way: Way, day: Day) -> None:
        self._milli, self._way, self._day = milli, way, day
        self._coming = {f"{number:03}": _Running(one, day) for number, one in enumerate(gpu)}
        self._here: dict[str, _Running] = {}
        self._states: Mapping[str, ElasticState] = {}
        day.wanted += sum(cell.work for one in gpu for cell in one.cells) * _MINUTE / _HOUR

    def run(self) -> None:
        """Simulate from midnight to midnight."""
        now, end = 0, DAY * _MINUTE
        while now < end:
            if self._come_and_go(now):
                self._pass({name: PeriodUse(self._milli, 0) for name in self._here})
            wants = {name: one.want(now) for name, one in self._here.items()}
            claims = {name: self._claim(name) for name in self._here}
            got = rates(claims, wants, idle=self._way.idle)
            seen = {
                name: PeriodUse(self._milli, round(got[name]), wants[name] > max(claims[name], got[name] + 1e-6))
                for name in got
            }
            periods = 1 if self._pass(seen) else self._until(now, got, end) - now
            self._account(claims, wants, got, periods)
            for name, one in self._here.items():
                one.run(now, periods, got[name])
            now += periods
        for one in self._here.values():
            one.leave()

    def _claim(self, name: str) -> int:
        return self._states[name].effective if self._way.elastic else self._milli

    def _pass(self, seen: Mapping[str, PeriodUse]) -> bool:
        """Run one pass of co-adjustment; return whether it changed anything."""
        if not self._way.elastic:
            return False
        before, self._states = self._states, adjust(self._states, seen, _RULES).states
        return before != self._states

    def _come_and_go(self, now: int) -> bool:
        gone = [name for name, one in self._here.items() if one.stop <= now]
        new = [name for name, one in self._coming.items() if one.start <= now]
        for name in gone:
            self._here.pop(name).leave()
        for name in new:
            self._here[name] = self._coming.pop(name)
        return bool(gone or new)

    def _until(self, now: int, got: Mapping[str, float], end: int) -> int:
        moments = [end, *(one.start for one in self._coming.values())]
        moments += [moment for name, one in self._here.items() for moment in (one.stop, one.next(now, got[name]))]
        return min(moments)

    def _account(
        self, claims: Mapping[str, int], wants: Mapping[str, float], got: Mapping[str, float], periods: int
    ) -> None:
        hours = periods / _HOUR
        self._day.unclaimed += hours * sum(max(0.0, got[name] - claims[name]) for name in got)
        self._day.starved += hours * sum(max(0.0, min(wants[name], self._milli) - got[name]) for name in got)


# --- the same event by event ------------------------------------------------------------------------------------------


def events(programs: Mapping[str, SimulatedProgram], seconds: int, *, elastic: bool) -> Mapping[str, ProgramUse]:
    """Simulate programs on one GPU with the arbiter; with ``elastic`` one pass of co-adjustment a period."""
    simulation = Simulation(programs, _TIMING, handover=200)
    if elastic:
        act = _Adjuster({name: one.milli for name, one in programs.items()})
        for moment in range(_TIMING.period, seconds * 1_000_000, _TIMING.period):
            simulation.at(moment, act)
    return simulation.run(seconds * 1_000_000)


class _Adjuster:
    """The node's step of each period: it reads the accounts of all shares and puts new amounts into force at once."""

    def __init__(self, allocated: Mapping[str, int]) -> None:
        self.allocated = dict(allocated)
        self._states: Mapping[str, ElasticState] = {}
        self._books: Mapping[str, TimeAccount] = {}

    def __call__(self, arbiter: Arbiter, now: int) -> Sequence[TurnOrder]:
        before, self._books = self._books, {name: arbiter.account(name, now) for name in self.allocated}
        seen = {
            name: PeriodUse.between(milli, before.get(name), self._books[name], _TIMING.period)
            for name, milli in self.allocated.items()
        }
        outcome = adjust(self._states, seen, _RULES)
        self._states = outcome.states
        return arbiter.put(outcome.effective, now, savings=self.allocated) if outcome.changes else ()


_PIECE = 60
"""Seconds; in the second half a user who was away comes back."""


def fluid_error(*, elastic: bool) -> float:
    """Return the largest error of the fluid in a share's GPU time, in percent of the GPU."""
    half, period = _PIECE * 500_000, _TIMING.period
    steady = {"little": 100, "some": 200}
    programs = {
        name: bursty(250, range(0, 2 * half, period), milli * period // 1000, silent=False)
        for name, milli in steady.items()
    }
    programs |= {"training": hog(250, _PIECE), "away": SimulatedProgram(250, ((half, 2 * half),), silent=True)}
    found = events(programs, _PIECE, elastic=elastic)
    states: Mapping[str, ElasticState] = {name: ElasticState.first(250) for name in programs}
    total = dict.fromkeys(programs, 0.0)
    for moment in range(0, 2 * half, period):
        wants = {**steady, "training": 1000, "away": 1000 if moment >= half else 0}
        claims = {name: one.effective for name, one in states.items()}
        got = rates(claims, {name: float(want) for name, want in wants.items()}, idle=True)
        total = {name: total[name] + got[name] * period / 1000 for name in total}
        seen = {name: PeriodUse(250, round(got[name]), wants[name] > max(claims[name], got[name])) for name in wants}
        states = adjust(states, seen, _RULES).states if elastic else states
    return max(100 * abs(total[name] - found[name].work) / (2 * half) for name in total)


# --- figures ----------------------------------------------------------------------------------------------------------


def run() -> Sequence[Figure]:
    """Measure a drawn day of 24 notebooks with a quarter of a GPU each; the baseline is the same with fixed shares."""
    found = {way.name: measure(placed(drawn(24), 250), 250, way) for way in WAYS}
    co_adjusted, fixed = found[WAYS[3].name], found[WAYS[2].name]
    return [
        *compare("co-adjustment, shares as limits", found[WAYS[1].name], found[WAYS[0].name]),
        *compare("co-adjustment, idle time used", co_adjusted, fixed),
        Figure(
            "co-adjustment, idle time used: without a claim", "%", co_adjusted.loose, _COMMAND, baseline=fixed.loose
        ),
        *_waits(),
        _fluid_figure(),
    ]


def compare(name: str, value: Day, fixed: Day) -> list[Figure]:
    """Compare a day with the same day with fixed shares."""
    late = fixed.waits
    return [
        Figure(f"{name}: wanted GPU work not done", "%", value.undone, _COMMAND, baseline=fixed.undone),
        Figure.of(f"{name}: cells end later, p95", "min", value.waits, _COMMAND, at=95, baseline=late),
        Figure(f"{name}: cells end later, mean", "min", fmean(value.waits), _COMMAND, baseline=fmean(late)),
        Figure(f"{name}: own GPU time not had in a day", "s", 3600 * value.starved, _COMMAND, baseline=0.0),
    ]


def _waits() -> list[Figure]:
    """Simulate a minute of jobs, event by event, for the shares that co-adjustment serves and those that pay for it."""
    minute = 60_000_000
    programs = {
        "hog": hog(300, 60),
        "more": bursty(100, range(50_000, minute, 200_000), 30_000),
        "rested": bursty(600, range(3_333_333, minute, 10_000_000), 300_000),
    }
    value, fixed = (events(programs, 60, elastic=elastic) for elastic in (True, False))
    words = {
        "more": "30 ms job of a share of 100 that wants 150",
        "rested": "300 ms job of a share of 600 after 10 s of rest",
    }
    return [
        Figure.of(
            f"co-adjustment, beside a hog: {text}, {part}, p95", "ms", _ms(getattr(value[name], part)), _COMMAND,
            at=95, baseline=_ms(getattr(fixed[name], part)),
        )
        for name, text in words.items()
        for part in ("times", "waits")
    ]  # fmt: skip


def _ms(times: Sequence[int]) -> list[float]:
    return [one / 1000 for one in times]


def _fluid_figure() -> Figure:
    error, fixed = (fluid_error(elastic=elastic) for elastic in (True, False))
    return Figure(
        "co-adjustment: fluid against events, error of GPU time", "%", error, _COMMAND, goal=3.0, baseline=fixed
    )


def main() -> int:
    """Print all four ways on one day."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.elastic", description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, metavar="DIR", help="has sessions_june_1_2.json; default: a drawn day")
    parser.add_argument("--first", type=int, default=DAY, help="minute of the recording at which the day begins")
    parser.add_argument("--milli", type=int, action="append", help="of each share; default: 250, and 125")
    parser.add_argument("--notebooks", type=int, default=48, help="of a drawn day")
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    try:
        trace, drawing = arguments.trace, (arguments.notebooks, arguments.seed)
        notebooks = recorded(trace, arguments.first) if trace else drawn(*drawing)
    except CannotRunError as error:
        parser.error(str(error))
    print(facts(notebooks))
    for milli in arguments.milli or (250, 125):
        gpus = placed(notebooks, milli)
        print(f"\nshares of {milli} on {len(gpus)} GPUs:")
        for way in WAYS:
            began = time.monotonic()
            print(f"{way.name:27} {_line(measure(gpus, milli, way))} ({time.monotonic() - began:.0f} s)")
    return 0


def _line(day: Day) -> str:
    late = "/".join(f"{percentile(day.waits, at):.1f}" for at in (50, 90, 95, 99, 100))
    return (
        f"{day.done:6.2f} of {day.wanted:.2f} GPU-h done, {day.undone:5.2f} % not; cells end later by {late} min "
        f"(p50/p90/p95/p99/max), mean {fmean(day.waits):.2f}; {day.unfinished} unfinished; "
        f"{day.loose:.1f} % of GPU time without a claim; own not had: {3600 * day.starved:.0f} s"
    )


if __name__ == "__main__":
    sys.exit(main())
