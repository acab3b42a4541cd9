"""Cells of recorded notebooks that find their GPUs at once: from the own node alone, and from all nodes.

Each cell asks for its GPUs when it is run, as a set: all on one node, as one process uses them. It begins when it has
all of them, opens them, and gives them back at its end; a cell that waits makes the later ones of its notebook later.
One on another node has its GPUs meanwhile, but begins only once its worker runs and has what the cell sends there
(`remote_costs`). The scheduler's own cache and rules decide. `scripts/bench pairs` uses a drawn day. On a recorded one:

    python -m benchmarks.pairs --trace DIR [--gpus 64] [--cold SECONDS] [--rate MB] [--sent MB]

All that is measured of GPUs of other nodes are its parts: `scripts/bench pairs` runs each by itself, `scripts/bench
pairs:warm pairs:dask` those two, and what cannot run here is named. Without names, `scripts/bench` has drawn days and
warm cells here, and the other parts as benchmarks of their own. More warm cells:

    python -m benchmarks.pairs --cells [--rounds 30]
"""

from __future__ import annotations

import argparse
import heapq
import importlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from .lib import warm_cell
from .lib.figures import CannotRunError, Figure, percentile, table
from .lib.notebook_cluster import NODE_GPUS, NotebookCluster
from .lib.notebook_trace import Session, drawn, peak, recorded
from .lib.remote_costs import COLD, RATE, WARM, Delay, RemoteCosts, lost, told

_COMMAND = "scripts/bench pairs"
_NOTEBOOKS = 40
_SEEDS = range(3)
_WAITING = 5.0  # per cent of the cells
_REMOTE = 30.0  # per cent of the cells
_CELLS = 30
_SIZES = (48, 64, 80, 96, 128, 160)
_GOAL_SIZE = 64
TRACE = "JUPYTER_GPU_TRACE"
"""The environment variable with the folder of the recording: it has sessions_june_1_2.json."""
_MEDIAN = 50
_MINUTE = 60.0
_SENT = 100.0  # megabytes by each remote cell of a drawn day, an assumption
_BEYOND = 60.0  # milliseconds beyond two local resizes
_END, _BEGIN, _ASK = range(3)
"""Events of one minute, in their order."""


class Cell(NamedTuple):
    """A cell that ran."""

    wait: float
    """Minutes until it had its GPUs."""
    remote: bool
    """Whether they were on another node."""
    delay: Delay | None = None
    """Until it began, if they were."""


class Outcome(NamedTuple):
    """The results of all cells."""

    cells: tuple[Cell, ...]
    busy: float
    """Minutes that all cells ran."""
    workers: int
    """Worker pods that were made."""
    decisions: tuple[float, ...]
    """Seconds of CPU of each decision."""

    @property
    def at_once(self) -> float:
        """Per cent of the cells that had their GPUs at once."""
        return 100 * fmean(cell.wait == 0 for cell in self.cells)

    @property
    def remote(self) -> float:
        """Per cent of the cells with GPUs of other nodes."""
        return 100 * fmean(cell.remote for cell in self.cells)

    @property
    def started(self) -> float:
        """Worker pods that were made, per hundred cells."""
        return 100 * self.workers / len(self.cells)

    @property
    def waits(self) -> list[float]:
        """Minutes, of all cells."""
        return [cell.wait for cell in self.cells]

    @property
    def delays(self) -> list[Delay]:
        """Those of the cells with GPUs of other nodes."""
        return [cell.delay for cell in self.cells if cell.delay]


def simulate(sessions: Sequence[Session], cluster: NotebookCluster, costs: RemoteCosts | None = None) -> Outcome:
    """Run all cells of all notebooks; ``costs``: of those on other nodes, by default what was measured."""
    costs = costs or RemoteCosts()
    names = [f"notebook{number}" for number in range(len(sessions))]
    events = [(float(one.start), _BEGIN, number) for number, one in enumerate(sessions)]
    heapq.heapify(events)
    done = [0] * len(sessions)
    asked: dict[int, float] = {}
    cells: list[Cell] = []
    while events:
        now, kind, number = heapq.heappop(events)
        one, name = sessions[number], names[number]
        cluster.at(now)
        if kind == _ASK:
            asked[number] = now
            cluster.ask(name, one.gpus)
        else:
            if kind == _BEGIN:
                cluster.start(name)
            else:
                done[number] += 1
                cluster.ask(name, 0)
            if done[number] < len(one.cells):
                heapq.heappush(events, (max(now, one.cells[done[number]].start), _ASK, number))
            else:
                cluster.end(name)
        for ready, since in list(asked.items()):
            own, other = cluster.has(names[ready])
            if max(own, other) >= sessions[ready].gpus:
                del asked[ready]
                cell, remote = sessions[ready].cells[done[ready]], own < sessions[ready].gpus
                delay = costs.delay(cluster.worker_age(names[ready]), cell.memory) if remote else None
                cells.append(Cell(now - since, remote, delay))
                heapq.heappush(events, (now + sum(delay or ()) / _MINUTE + cell.length, _END, ready))
    assert not asked, "cells wait for ever"
    busy = sum(cell.length for one in sessions for cell in one.cells)
    return Outcome(tuple(cells), busy, cluster.started, tuple(cluster.decisions))


def run() -> Sequence[Figure]:
    """Measure the parts that are no benchmark of their own, as far as they can run here."""
    return [*days(), *([] if os.geteuid() else warm(_CELLS))]


def days() -> Sequence[Figure]:
    """Measure on drawn days, with as many GPUs as all cells need at once; the baseline is the own node alone."""
    outcomes: dict[bool, list[Outcome]] = {False: [], True: []}
    costs = RemoteCosts(sent=_SENT)
    for seed in _SEEDS:
        sessions = drawn(_NOTEBOOKS, seed)
        for remote, found in outcomes.items():
            found.append(simulate(sessions, NotebookCluster(_whole_nodes(peak(sessions)), remote=remote), costs))
    waiting = {remote: 100 - fmean(one.at_once for one in found) for remote, found in outcomes.items()}
    elsewhere = fmean(one.remote for one in outcomes[True])
    what = f"pairs: {_NOTEBOOKS} notebooks a day on as many GPUs as their cells need at once"
    return [
        Figure(f"{what}, cells that wait", "%", waiting[True], _COMMAND, goal=_WAITING, baseline=waiting[False]),
        Figure(f"{what}, cells with GPUs of other nodes", "%", elsewhere, _COMMAND, goal=_REMOTE),
    ]


def warm(rounds: int) -> Sequence[Figure]:
    """Measure warm cells on another node; the baseline is a local resize, in turn with them. Raises CannotRunError."""
    if os.geteuid():
        raise CannotRunError("warm cells need root, as node plugins run")
    cells, resizes = warm_cell.measure(rounds)
    name = "pairs: warm %%gpu cell on another node to its first line"
    return [
        Figure.of(
            f"{name}, p{at}",
            "ms",
            cells,
            _COMMAND,
            at=at,
            goal=2 * percentile(resizes, at) + _BEYOND,
            baseline=resizes,
            sure=at == _MEDIAN,
        )
        for at in (_MEDIAN, 99)
    ]


def trace() -> Sequence[Figure]:
    """Measure on recorded notebooks, for clusters of several sizes. Raises CannotRunError where there are none."""
    folder = os.environ.get(TRACE)
    if not folder:
        raise CannotRunError(f"{TRACE} names no folder with a recording")
    sessions, found = recorded(Path(folder)), list[Figure]()
    for gpus in _SIZES:
        own, both = (simulate(sessions, NotebookCluster(gpus, remote=remote)) for remote in (False, True))
        what = f"pairs: {len(sessions)} recorded notebooks on {gpus} GPUs"
        goals = (_WAITING, _REMOTE) if gpus == _GOAL_SIZE else (None, None)
        waiting, before = 100 - both.at_once, 100 - own.at_once
        command = f"{_COMMAND}:trace"
        found.append(Figure(f"{what}, cells that wait", "%", waiting, command, goal=goals[0], baseline=before))
        found.append(Figure(f"{what}, cells with GPUs of other nodes", "%", both.remote, command, goal=goals[1]))
        found += _costs(what, both, command)
    return found


def _costs(what: str, outcome: Outcome, command: str) -> Iterator[Figure]:
    """Yield what cells on other nodes cost: in the time of all cells, and each of them."""
    part = lost(outcome.delays, outcome.busy)
    yield Figure(f"{what}, waits for workers and bytes, of the time of all cells", "%", part, command)
    if outcome.delays:
        waits = [1000 * sum(delay) for delay in outcome.delays]
        yield Figure.of(f"{what}, wait of a remote cell for its worker and bytes", "ms", waits, command)


def _other(name: str) -> Callable[[], Sequence[Figure]]:
    """Return what measures a benchmark of its own, which is loaded then."""

    def measure() -> Sequence[Figure]:
        figures: Sequence[Figure] = importlib.import_module(f".{name}", __package__).run()
        return figures

    return measure


PARTS: Mapping[str, Callable[[], Sequence[Figure]]] = {
    "days": days,
    "warm": lambda: warm(_CELLS),
    "cold": _other("cold_cells"),
    "trace": trace,
    "bytes": _other("remote_cell"),
    "dask": _other("dask_workers"),
    "decisions": _other("decide"),
    "lending": _other("lending"),
}
"""Cells of drawn days; a warm cell to its first line, and one without a worker; recorded days; 100 MB there and back;
Dask with one GPU more and one less; decisions; owners beside a guest.
"""


def _whole_nodes(gpus: int) -> int:
    return -(-gpus // NODE_GPUS) * NODE_GPUS


def main() -> int:
    """Print both ways for clusters of several sizes."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pairs", description=__doc__.splitlines()[0])
    parser.add_argument("--trace", type=Path, metavar="DIR", help="has sessions_june_1_2.json; default: a drawn day")
    parser.add_argument("--gpus", type=int, action="append", help="of the cluster; default: 48 to 160")
    parser.add_argument("--seed", type=int, default=0, help="of a drawn day")
    parser.add_argument("--cold", type=float, default=COLD, metavar="SECONDS", help="of a cell whose worker must start")
    parser.add_argument("--warm", type=float, default=WARM, metavar="SECONDS", help="of one whose worker runs")
    parser.add_argument("--rate", type=float, default=RATE, metavar="MB", help="that are sent in a second")
    parser.add_argument(
        "--sent", type=float, metavar="MB",
        help="by each cell on another node; default: all that it has on its GPUs, as recorded",
    )  # fmt: skip
    parser.add_argument("--cells", action="store_true", help="measure warm cells alone")
    parser.add_argument("--rounds", type=int, default=_CELLS, help="warm cells")
    arguments = parser.parse_args()
    if arguments.cells:
        try:
            print(table(warm(arguments.rounds)))
        except CannotRunError as error:
            parser.error(str(error))
        return 0
    try:
        sessions = recorded(arguments.trace) if arguments.trace else drawn(_NOTEBOOKS, arguments.seed)
    except CannotRunError as error:
        parser.error(str(error))
    cells, reserved = sum(len(one.cells) for one in sessions), peak(sessions, reserved=True)
    print(f"{len(sessions)} notebooks, {cells} cells; {peak(sessions)} GPUs in cells at once, {reserved} if reserved")
    costs = RemoteCosts(arguments.cold, arguments.warm, arguments.rate, arguments.sent)
    for gpus in arguments.gpus or _SIZES:
        for remote in (False, True):
            found = simulate(sessions, NotebookCluster(gpus, remote=remote), costs)
            decided = [1000 * seconds for seconds in found.decisions]
            print(
                f"{gpus:4} GPUs, {'all nodes' if remote else 'own node '}: {found.at_once:5.1f} % at once, wait mean "
                f"{fmean(found.waits):5.1f}, p95 {percentile(found.waits, 95):4.0f} min; "
                f"{found.remote:4.1f} % of the cells remote, {found.started:5.1f} worker pods per 100 cells; "
                f"{told(found.delays, len(found.cells), found.busy)}; decision p50 {percentile(decided, 50):.1f}, "
                f"p99 {percentile(decided, 99):.1f} ms"
            )
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
