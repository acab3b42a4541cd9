"""The choice of the run that counts, among several."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pytest

from benchmarks.lib.host import Calm, calmest


def _measured(taken: Sequence[int]) -> tuple[Calm[int], int]:
    """Measure runs of 1,000 ticks each, of which the host takes ``taken``; return what counts, and their number."""
    runs = 0
    stolen = 0

    def ticks() -> tuple[int, int]:
        return stolen, 1000 * runs

    def measure() -> int:
        nonlocal runs, stolen
        stolen += taken[runs]
        runs += 1
        return runs

    return calmest(measure, ticks), runs


@pytest.mark.parametrize(
    ("taken", "counts", "made"),
    [((0,), 1, 1), ((10, 0), 1, 1), ((11, 10), 2, 2), ((50, 20, 30), 2, 3), ((50, 20, 0), 3, 3)],
)
def test_first_calm_run_counts_or_else_the_calmest(taken: Sequence[int], counts: int, made: int) -> None:
    """No more runs than needed are made."""
    run, runs = _measured(taken)
    assert (run.result, runs) == (counts, made)
    assert run.taken == taken[counts - 1] / 10


def test_machine_reports_the_time_its_host_took() -> None:
    """The figure is a percentage."""
    results: Iterator[str] = iter("abc")
    run = calmest(lambda: next(results))
    assert run.result in "abc"
    assert 0 <= run.taken <= 100
