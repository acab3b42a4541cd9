"""Detects when the host of a virtual machine takes its CPUs away, as measurements then show the host."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

CALM = 1.0
"""Percent of the CPUs that a host may take from a run that counts."""
TRIES = 3

T = TypeVar("T")


@dataclass(frozen=True)
class Calm(Generic[T]):
    """A measurement, and how much of the CPUs the host took meanwhile."""

    result: T
    taken: float
    """Percent of the CPUs that the host took meanwhile."""


def calmest(measure: Callable[[], T], ticks: Callable[[], tuple[int, int]] | None = None) -> Calm[T]:
    """Return the first run that the host left alone, or else the one from which it took least.

    Only that decides, never what was measured. ``ticks``: of the CPUs so far, those that the host took and all.
    """
    count = ticks or _ticks
    runs: list[Calm[T]] = []
    while len(runs) < TRIES and not (runs and runs[-1].taken <= CALM):
        taken, passed = count()
        result = measure()
        taken_then, passed_then = count()
        runs.append(Calm(result, 100 * (taken_then - taken) / max(1, passed_then - passed)))
    return min(runs, key=lambda run: run.taken)


def _ticks() -> tuple[int, int]:
    """Return the ticks of all CPUs (proc_stat(5): ``steal``, and the sum up to it: guests are part of ``user``)."""
    times = [int(field) for field in Path("/proc/stat").read_text().split(maxsplit=9)[1:9]]
    return times[7], sum(times)
