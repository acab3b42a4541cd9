"""A day of notebook activity on shared GPUs: read from a recording, or drawn so that it resembles one.

A cell is described by what it would do with a GPU of its own: how long, with how much of the GPU (its pace). Minutes
throughout.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import fmean
from typing import Any

from .figures import CannotRunError, percentile

DAY = 24 * 60
RECORDING = "sessions_june_1_2.json"


@dataclass(frozen=True)
class Cell:
    """A cell that begins at ``start``, or when the one before it has ended."""

    start: int
    length: int
    pace: int
    """Thousandths of a GPU that it uses when it is alone there."""

    @property
    def work(self) -> int:
        return self.length * self.pace


@dataclass(frozen=True)
class Notebook:
    """A notebook that has its share from ``start`` to ``stop``; cells not finished by then are not done."""

    start: int
    stop: int
    cells: tuple[Cell, ...]


Gpu = Sequence[Notebook]


def recorded(folder: Path, first: int = DAY) -> list[Notebook]:
    """Return the 24 hours of a recording from minute ``first`` on; its ticks are minutes. Only cells with a GPU count.

    A share is of one GPU: for a cell on several, the mean of their use counts. Sessions and cells that cross the day's
    borders are cut.
    """
    try:
        sessions = json.loads((folder / RECORDING).read_text())["sessions"]
        found = [_notebook(one, first) for one in sessions]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotRunError(f"{folder / RECORDING} is no recording of sessions: {error!r}") from error
    return [one for one in found if one.cells]


def _notebook(session: dict[str, Any], first: int) -> Notebook:
    cells = []
    for one in sorted(session["trainings"], key=lambda one: one["start_tick"]):
        use = [gpu["utilization"] for gpu in one["gpu_utilizations"]]
        start, stop = _cut(one["start_tick"], one["end_tick"], first)
        if use and start < stop:
            cells.append(Cell(start, stop - start, max(1, round(10 * sum(use) / len(use)))))
    return Notebook(*_cut(session["start_tick"], session["stop_tick"], first), tuple(cells))


def _cut(start: int, stop: int, first: int) -> tuple[int, int]:
    return max(0, start - first), min(DAY, stop - first)


def drawn(count: int, seed: int = 0) -> list[Notebook]:
    """Draw this many notebooks, present all day, with the published statistics of the recording.

    Lengths are lognormal with p50 11 and p75 21 minutes, but for one cell in fifty, which lasts for 20 hours on
    average, or for what is left of the day. From one start to the next p50 is 15 and p5 5 minutes. The use of the GPU
    has p50 11.4 and mean 24 %. After one cell in eight its user is away, so that cells run for a quarter of the day.
    """
    chance = random.Random(seed)
    spread = math.sqrt(2 * math.log(24 / 11.4))
    found = []
    for _ in range(count):
        cells: list[Cell] = []
        moment = chance.expovariate(1 / 240)
        while moment < DAY - 1:
            length = chance.expovariate(1 / 1200) if chance.random() < 1 / 50 else 11 * math.exp(chance.gauss(0, 0.96))
            pace = min(1000, max(1, round(114 * math.exp(chance.gauss(0, spread)))))
            start = round(moment)
            cells.append(Cell(start, min(DAY - start, max(1, round(length))), pace))
            moment = max(start + length + 1, moment + 15 * math.exp(chance.gauss(0, 0.67)))
            if chance.random() < 1 / 8:
                moment += chance.expovariate(1 / 600)
        if cells:
            found.append(Notebook(0, DAY, tuple(cells)))
    return found


def facts(notebooks: Sequence[Notebook]) -> str:
    """Describe a day in one line."""
    cells = [cell for one in notebooks for cell in one.cells]
    lengths = [float(cell.length) for cell in cells]
    gaps = [float(after.start - before.start) for one in notebooks for before, after in pairwise(one.cells)]
    there = sum(one.stop - one.start for one in notebooks)
    return (
        f"{len(notebooks)} notebooks, {len(cells)} cells; length p50/p75/p90 "
        f"{'/'.join(f'{percentile(lengths, at):.0f}' for at in (50, 75, 90))}, mean {fmean(lengths):.0f} min; "
        f"from start to start p50 {percentile(gaps, 50):.0f} min; use of the GPU mean "
        f"{fmean(cell.pace for cell in cells) / 10:.0f} %; cells run {100 * sum(lengths) / there:.0f} % of the time"
    )


def placed(notebooks: Sequence[Notebook], milli: int) -> list[Gpu]:
    """Place each notebook's ``milli`` on the first GPU that has as much left while the notebook is there."""
    gpus: list[list[Notebook]] = []
    for one in sorted(notebooks, key=lambda one: (one.start, one.stop)):
        for gpu in gpus:
            if milli * (1 + sum(other.stop > one.start for other in gpu)) <= 1000:
                gpu.append(one)
                break
        else:
            gpus.append([one])
    return [tuple(gpu) for gpu in gpus]
