"""The time for which a CPU limit kept programs from running, from the counters of their control groups. Pure.

A program that its limit has stopped can neither give the GPU back nor say that it takes longer. The kernel counts, for
each group with a limit, the periods in which it ran out of time (``cpu.stat``); the duration is counted over all CPUs
together, and only when it runs again. So each period counts as a whole, and one more is added, as the counters do not
show a period that has not ended at the first or the last reading.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

MOST = 10_000_000
"""The longest allowance, in microseconds: as long as for a program that says that its work takes longer."""


class Throttled(NamedTuple):
    """The counters of one control group with a CPU limit, since it was made."""

    times: int
    """Periods in which it was stopped."""
    time: int
    """Microseconds for which its CPUs were, together."""
    period: int
    """Microseconds of one period."""


Groups = Mapping[str, Throttled]
"""The counters by group: those of a program, and of all groups that they are in."""


def parse(stat: str, period: int) -> Throttled | None:
    """Parse ``cpu.stat`` of either version; None: this group cannot have a limit."""
    found: dict[str, int] = {}
    for line in stat.splitlines():
        name, _, value = line.partition(" ")
        if value.isascii() and value.isdigit():
            found[name] = int(value)
    time = found.get("throttled_usec", found.get("throttled_time", 0) // 1000)
    return Throttled(found["nr_throttled"], time, period) if "nr_throttled" in found else None


def period_of(limit: str) -> int | None:
    """Return the period in ``cpu.max``, where version 2 keeps the limit; None: it has none."""
    quota, _, period = limit.strip().partition(" ")
    return _positive(period) if _positive(quota) else None


def period_by(quota: str, period: str) -> int | None:
    """Return the period by the two files of version 1; None: there is no limit, which is -1 there."""
    return _positive(period.strip()) if _positive(quota.strip()) else None


def _positive(text: str) -> int | None:
    return (int(text) or None) if text.isascii() and text.isdigit() else None


def allowance(before: Groups, now: Groups, heard: int) -> int:
    """Return for how many microseconds a CPU limit kept programs from giving the GPU back, at most `MOST`.

    ``before`` was read ``heard`` microseconds after they were asked: the counters do not cover that time, so one
    period of it is allowed where there is a limit. (A program that said that its work takes longer was not stopped.)
    """
    known = [(before[group], one) for group, one in now.items() if group in before]
    return min(MOST, max((min(heard, pair[1].period) + _stopped(*pair) for pair in known), default=0))


def _stopped(before: Throttled, now: Throttled) -> int:
    times, time = now.times - before.times, now.time - before.time
    if not now.times:
        return 0
    return min((max(times, 0) + 1) * now.period, max(time, 0) + now.period)
