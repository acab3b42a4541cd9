"""Figures of a benchmark: one number against its goal and its baseline.

A benchmark module has `def run() -> Sequence[Figure]`. `scripts/bench` runs it, prints a table and writes JSON.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass


def percentile(samples: Iterable[float], percent: float) -> float:
    """Return the smallest sample that at least `percent` (0–100) of the samples do not exceed (nearest rank).

    Nearest rank gives a value that was really measured; with few samples p99 is the maximum, never an interpolation
    below it. Raises ValueError for no samples or a percentage outside 0–100.
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples: a percentile needs at least one")
    if not 0 <= percent <= 100:
        raise ValueError(f"{percent} is not a percentage from 0 to 100")
    return ordered[max(0, math.ceil(percent / 100 * len(ordered)) - 1)]


def interval(samples: Iterable[float], sure: float = 0.95) -> tuple[float, float]:
    """Return two samples between which the median of the distribution lies, in at least `sure` of all runs.

    By the order of the samples alone: how many of them lie below the median is a binomial count, however skewed the
    noise of a busy machine is. Too few samples (below 6 for 95 %) give the least and the largest. Raises ValueError for
    no samples.
    """
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples: an interval needs at least one")
    count, below, cut = len(ordered), 0.0, 0
    for heads in range((count + 1) // 2):
        below += math.comb(count, heads) / 2**count
        if below > (1 - sure) / 2:
            break
        cut = heads + 1
    cut = max(1, cut)
    return ordered[cut - 1], ordered[-cut]


@dataclass(frozen=True)
class Figure:
    """One measured number.

    `value`, `goal`, `baseline` and the percentiles are in `unit`. `goal` is the largest good value (lower is better for
    everything measured here); None: there is none. `baseline` is what the same run measured without the product, or
    with the simplest thing that does the job. `command` measures it again.
    """

    name: str
    unit: str
    value: float
    command: str
    goal: float | None = None
    baseline: float | None = None
    p50: float | None = None
    p90: float | None = None
    p99: float | None = None
    low: float | None = None
    high: float | None = None
    """Between these is the median, at 95 %; None: it was not asked how sure it is."""

    @classmethod
    def of(
        cls,
        name: str,
        unit: str,
        samples: Sequence[float],
        command: str,
        *,
        at: float = 50,
        goal: float | None = None,
        baseline: Sequence[float] | None = None,
        sure: bool = False,
    ) -> "Figure":
        """Return the figure of percentile `at` of `samples`; its baseline is the same percentile of `baseline`.

        `sure`: with the interval of the median.
        """
        low, high = interval(samples) if sure else (None, None)
        return cls(
            name=name,
            unit=unit,
            value=percentile(samples, at),
            command=command,
            goal=goal,
            baseline=None if baseline is None else percentile(baseline, at),
            p50=percentile(samples, 50),
            p90=percentile(samples, 90),
            p99=percentile(samples, 99),
            low=low,
            high=high,
        )

    @property
    def met(self) -> bool | None:
        """Return whether the goal is met; None without a goal."""
        return None if self.goal is None else self.value <= self.goal

    @property
    def ratio(self) -> float | None:
        """Return `value / baseline`; None without a baseline, or if it is 0."""
        return self.value / self.baseline if self.baseline else None

    def to_json(self) -> dict[str, object]:
        """Return all fields with `met` and `ratio`, as JSON values."""
        return {**asdict(self), "met": self.met, "ratio": self.ratio}


def table(figures: Sequence[Figure]) -> str:
    """Return the figures as text for people: aligned columns, one line each."""
    head = ("figure", "value", "95 %", "goal", "", "baseline", "ratio", "p50", "p90", "p99")
    rows = [
        (
            figure.name,
            f"{short(figure.value)} {figure.unit}",
            "" if figure.low is None else f"{short(figure.low)} to {short(figure.high)}",
            "–" if figure.goal is None else f"≤ {short(figure.goal)}",
            {None: "", True: "met", False: "MISSED"}[figure.met],
            *(short(x) for x in (figure.baseline, figure.ratio, figure.p50, figure.p90, figure.p99)),
        )
        for figure in figures
    ]
    widths = [max(len(row[column]) for row in (head, *rows)) for column in range(len(head))]
    lines = (
        "  ".join(
            cell.ljust(width) if column == 0 else cell.rjust(width)
            for column, (cell, width) in enumerate(zip(row, widths, strict=True))
        )
        for row in (head, *rows)
    )
    return "\n".join(line.rstrip() for line in lines)


def short(number: float | None) -> str:
    """Return three significant digits without an exponent; `–` for None."""
    if number is None:
        return "–"
    if number == 0 or not math.isfinite(number):
        return f"{number:g}"
    decimals = max(0, 2 - math.floor(math.log10(abs(number))))
    return f"{number:.{min(decimals, 6)}f}"


class CannotRunError(Exception):
    """A benchmark lacks what it needs on this machine; the message says what."""
