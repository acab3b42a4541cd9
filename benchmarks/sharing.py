"""Turns on a shared GPU, in simulated time: how long a notebook waits beside training, how exact shares are, banks.

The programs behave as the gate makes them: kernels of 1 ms, two in flight, 0.4 ms for each handover. The other orders
get the same programs and give an idle GPU back early, too, which not all users of them do.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence

from benchmarks.lib.simulated_gpu import ProgramUse, SimulatedProgram, Simulation, bursty, hog
from jupyter_gpu_node.shares.rules.turns.order import TurnOrdering
from jupyter_gpu_node.shares.rules.turns.timing import Timing
from jupyter_gpu_node.shares.rules.turns.turn_state import TurnShare

from .lib.figures import Figure, percentile

_COMMAND = "scripts/bench sharing"
_MS, _SECOND = 1_000, 1_000_000
_SECONDS = 60
_HANDOVER = 400
_WARM = 6
"""The first sixth is left out, as there are no savings yet."""


class Fifo(TurnOrdering):
    """The order of a lock on the GPU: the longest waiting first, for one lease."""

    def rank(self, one: TurnShare, _: int) -> tuple[int, int, int]:
        """Return the sort key of a waiting share, least first."""
        return 0, 0, one.since

    def presses(self, *_: object) -> bool:
        """Tell that no share ends another's lease."""
        return False


class LeastServed(Fifo):
    """The order of quotas, as in Gemini (TCC'21): the least served share first, for one lease."""

    def rank(self, one: TurnShare, now: int) -> tuple[int, int, int]:
        """Return the sort key of a waiting share, least first."""
        account = one.ledger.account(now)
        used = account.guaranteed + account.borrowed + account.idle + account.overrun
        return 0, used * 1000 // one.ledger.milli, one.since


def run() -> Sequence[Figure]:
    """Measure for some ten seconds."""
    return [*(figure for hogs in (1, 2, 4, 8) for figure in _beside(hogs)), _exact(), _liar(), *_bank()]


def _beside(hogs: int) -> list[Figure]:
    """Return the waits of a burst of 20 ms every 200 ms, beside busy shares of equal size."""
    ours = _notebook(hogs, TurnOrdering)
    quotas, fifo = (percentile(_waits(_notebook(hogs, order)), 95) for order in (LeastServed, Fifo))
    waits = _waits(ours)
    goals = (2.5, 5, 12) if hogs < 8 else (4, 8, 20)
    beside = f"beside {hogs} hogs (simulated)"
    return [
        Figure(f"wait of a burst {beside}, p50", "ms", percentile(waits, 50), _COMMAND, goals[0]),
        Figure(
            f"the same, p95, against least served first {beside}",
            "ms",
            percentile(waits, 95),
            _COMMAND,
            goals[1],
            quotas,
        ),
        Figure(
            f"the same, p95, against first come, first served {beside}",
            "ms",
            percentile(waits, 95),
            _COMMAND,
            goals[1],
            fifo,
        ),
        Figure(f"the same, longest {beside}", "ms", max(waits), _COMMAND, goals[2]),
        Figure(f"GPU without work {beside}", "%", 100 - 100 * _busy(ours), _COMMAND, 4),
    ]


def _notebook(hogs: int, order: Callable[[Timing], TurnOrdering]) -> Mapping[str, ProgramUse]:
    draw = random.Random(hogs)
    milli = 1000 // (hogs + 1)
    moments = [200 * _MS * number + draw.randrange(50 * _MS) for number in range(5 * _SECONDS)]
    programs = {"notebook": bursty(milli, moments, 20 * _MS)}
    programs |= {f"hog {number}": hog(milli, _SECONDS) for number in range(hogs)}
    return Simulation(programs, Timing(), handover=_HANDOVER, order=order).run(_SECONDS * _SECOND)


def _waits(uses: Mapping[str, ProgramUse], name: str = "notebook") -> list[float]:
    waits = uses[name].waits
    return [wait / _MS for wait in waits[len(waits) // _WARM :]]


def _busy(uses: Mapping[str, ProgramUse]) -> float:
    return sum(use.work for use in uses.values()) / (_SECONDS * _SECOND)


def _exact() -> Figure:
    """Return the largest error of four busy shares in a minute."""
    shares = (100, 200, 300, 400)
    programs = {str(milli): hog(milli, _SECONDS) for milli in shares}
    uses = Simulation(programs, Timing(), handover=_HANDOVER).run(_SECONDS * _SECOND)
    total = sum(use.work for use in uses.values())
    error = max(abs(uses[str(milli)].work / total - milli / 1000) for milli in shares)
    return Figure("error of shares 100/200/300/400 in a minute (simulated)", "% of GPU", 100 * error, _COMMAND, 0.05)


def _liar() -> Figure:
    """Simulate a share that reports no work in its turns, beside an honest one, in shares of many sizes."""
    gains = []
    for milli in (100, 300, 500, 900):
        liar = SimulatedProgram(milli, ((0, 2 * _SECONDS * _SECOND),), silent=True, lies=True)
        programs = {"liar": liar, "hog": hog(1000 - milli, _SECONDS)}
        uses = Simulation(programs, Timing(), handover=_HANDOVER).run(_SECONDS * _SECOND)
        gains.append(uses["liar"].work / sum(use.work for use in uses.values()) * 1000 / milli - 1)
    return Figure("a liar's gain (simulated)", "% of its share", 100 * max(gains), _COMMAND, 0.5)


# --- the bank: bursts of CPU bandwidth control (lkml, December 2020: p99 933 → 12 µs) as slices of a GPU ------------


def _bank() -> list[Figure]:
    """Simulate a share with a demand of 0.71 of its quota on average, and up to three times that in single periods."""
    without, with_it = _bursts(banked=False), _bursts()
    before, after = _waits(without, "burst"), _waits(with_it, "burst")
    figures = []
    for at, name in ((50, "p50"), (99, "p99"), (99.9, "p99.9"), (100, "longest")):
        was = percentile(before, at)
        goal = was / 10 if at == 99 else None
        figures.append(
            Figure(
                f"bank: wait of a bursty share, {name} (simulated)", "ms", percentile(after, at), _COMMAND, goal, was
            )
        )
    for expiry in (0.1, 0.3, 1, 5):
        value = percentile(_waits(_bursts(expiry=round(expiry * _SECOND)), "burst"), 99)
        name = f"bank: the same, p99, deposits expire after {expiry} s (simulated)"
        figures.append(Figure(name, "ms", value, _COMMAND, None, percentile(before, 99)))
    was, now = (percentile(_waits(uses, "neighbour"), 99) for uses in (without, with_it))
    figures.append(Figure("bank: what its neighbour waits, p99 (simulated)", "ms", now, _COMMAND, 1.072 * was, was))
    return figures


def _bursts(expiry: int = Timing().expiry, *, banked: bool = True) -> Mapping[str, ProgramUse]:
    programs = {
        "burst": SimulatedProgram(200, _jobs(1, 0.71 * 20 * _MS, 2, 60 * _MS), 250, silent=True),
        "neighbour": SimulatedProgram(100, _jobs(2, 5 * _MS, 4, 30 * _MS), 250, silent=True),
        "hog": hog(700, _SECONDS, 250),
    }
    simulation = Simulation(programs, Timing(expiry=expiry), handover=100)
    if not banked:
        simulation.arbiter.put({"burst": 200}, 0, savings={"burst": 0})
    return simulation.run(_SECONDS * _SECOND)


def _jobs(seed: int, mean: float, shape: float, most: int) -> tuple[tuple[int, int], ...]:
    """Return jobs of 1 ms; how many a period has is drawn from a gamma distribution, and they come evenly."""
    draw = random.Random(seed)
    found = []
    for period in range(10 * _SECONDS):
        count = round(min(draw.gammavariate(shape, mean / shape), most) / _MS)
        found += [(period * 100 * _MS + draw.randrange(100 * _MS), _MS) for _ in range(count)]
    return tuple(sorted(found))
