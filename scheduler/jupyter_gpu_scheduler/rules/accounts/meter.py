"""GPU time by day of the calendar, counted at each change of what is held and not sampled. Pure.

A clock that never goes back measures how long GPUs were held; the time of day only tells on which day that was. So
setting the clock never adds or loses GPU time; it may move some of it to another day.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import date, tzinfo

from jupyter_gpu.model.limits.account import KEPT_DAYS
from jupyter_gpu.model.limits.calendar import day_of, moment_of


@dataclass(frozen=True, slots=True)
class GpuTimeMeter:
    """The GPU time of one owner."""

    at: float
    """Seconds until which it is counted, on a clock that never goes back."""
    milli: int = 0
    """Amount held since then."""
    days: Mapping[date, int] = field(default_factory=dict, hash=False)
    """Milli-GPU-milliseconds by day: half a GPU for a second is 500,000."""

    def counted(self, at: float, now: float, zone: tzinfo) -> GpuTimeMeter:
        """Return the meter with all counted until ``at``, which is ``now`` in seconds since 1970."""
        elapsed = max(0, round((at - self.at) * 1000))
        if not elapsed:
            return self
        days = dict(self.days)
        if self.milli:
            for day, part in by_day(round(now * 1000), elapsed, zone):
                days[day] = days.get(day, 0) + self.milli * part
        return replace(self, at=self.at + elapsed / 1000, days=_recent(days))

    @property
    def used(self) -> dict[date, int]:
        """Milli-GPU-seconds by day, as budgets count them."""
        return {day: amount // 1000 for day, amount in self.days.items()}

    def holding(self, milli: int) -> GpuTimeMeter:
        """Return the meter of an owner that holds ``milli`` from now on; all before must be counted."""
        return replace(self, milli=milli)


def by_day(end: int, elapsed: int, zone: tzinfo) -> Iterator[tuple[date, int]]:
    """Yield the days of the ``elapsed`` milliseconds before ``end`` (since 1970), latest first, with their parts."""
    while elapsed:
        day = day_of((end - 1) / 1000, zone)
        part = min(elapsed, end - moment_of(day, 0, zone) * 1000)
        yield day, part
        end, elapsed = end - part, elapsed - part


def _recent(days: dict[date, int]) -> dict[date, int]:
    """Return the newest days, by their number: one day of a clock that was wrong pushes out no other."""
    return {day: days[day] for day in sorted(days)[-KEPT_DAYS:]}
