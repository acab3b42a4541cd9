"""Windows of hours and budgets: the maximum that is in force at a moment, and when it changes next.

Hours are read on the clock of the installation's time zone. They are spans between two moments, so that neither change
of the clocks makes them begin or end twice: a time that comes twice is its first, and one that is skipped is the moment
of the change. Budgets have fixed windows of the calendar, and count the GPU time of each day as the account has it,
never a difference of clocks.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta, tzinfo
from itertools import chain
from math import inf
from typing import TypeVar

from .amount import UNLIMITED, Amount, Unlimited, amount_key
from .effective import EffectiveLimits, TimeLimits
from .source import LimitPart, Sourced
from .times import MINUTES, Budget, BudgetWindow, Hours

T = TypeVar("T")

DAY = timedelta(days=1)
HORIZON = 40
"""Days to look ahead: by then every window of the calendar has ended, and every day of the week has come."""

_ANY: Sourced[Amount] = Sourced(UNLIMITED)


@dataclass(frozen=True, slots=True)
class LimitsInForce:
    """The maximum and the guaranteed amount of an owner at one moment."""

    max: Sourced[Amount]
    """Milli."""
    guaranteed: Sourced[int]
    """Milli; at most ``max``."""
    until: float | None = None
    """Seconds since 1970 at which ``max`` will be another, if no more of a budget is used; ``None``: not foreseen."""


def in_force(effective: EffectiveLimits, now: float, zone: tzinfo, used: Mapping[date, int]) -> LimitsInForce:
    """Return what hours and budgets leave of ``effective`` at ``now``, in seconds since 1970.

    ``used`` has the milli-GPU-seconds of each calendar day in ``zone``. Hours lower the maximum to what they say, a
    budget that is used up lowers it to what is guaranteed.
    """
    most = _maximum(effective, now, zone, used)
    guaranteed = effective.guaranteed
    if isinstance(most.value, int) and most.value < guaranteed.value:
        guaranteed = Sourced(most.value, most.source)
    later = _boundaries(effective, now, zone, used)
    until = (moment for moment in later if _maximum(effective, moment, zone, used).value != most.value)
    return LimitsInForce(most, guaranteed, next(until, None))


def runs_out(
    effective: EffectiveLimits, now: float, zone: tzinfo, used: Mapping[date, int], milli: int
) -> float | None:
    """Return when the budget is used up for an owner who goes on to hold ``milli``, in seconds since 1970.

    ``None``: not before the end of the window, or it is used up already.
    """
    today = day_of(now, zone)

    def spent_at(items: Iterable[Sourced[Budget]]) -> float:
        return min((_spent_at(item.value, now, zone, used, milli) for item in items), default=inf)

    alternatives, cap = effective.budget.alternatives, effective.budget.cap
    last = max((spent_at(items) for items in alternatives), default=inf)
    windows = (moment_of(window_of(item.value.window, today)[1], 0, zone) for item in chain(*alternatives))
    if last >= min(windows, default=inf):  # by then the first of them has begun anew
        last = inf
    found = min(last, spent_at(cap))
    return found if now < found < inf else None


def window_of(window: BudgetWindow, day: date) -> tuple[date, date]:
    """Return the first day of the window that ``day`` is in, and the first day of the next window."""
    if window is BudgetWindow.DAY:
        return day, day + DAY
    if window is BudgetWindow.WEEK:
        monday = day - day.weekday() * DAY
        return monday, monday + 7 * DAY
    first = day.replace(day=1)
    return first, (first + 31 * DAY).replace(day=1)


def day_of(moment: float, zone: tzinfo) -> date:
    """Return the calendar day of a moment, in seconds since 1970."""
    return _local(moment, zone).date()


def moment_of(day: date, minutes: int, zone: tzinfo) -> int:
    """Return the moment, in seconds since 1970, at which clocks show ``minutes`` after midnight of ``day``.

    The first such moment; where the clocks skip that time, the moment at which they do.
    """
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)
    moment = round(wall.replace(tzinfo=zone).timestamp())
    if _local(moment, zone).replace(tzinfo=None) == wall:
        return moment
    # In a gap the offset after it gives a moment before the change, and the offset before it one after it.
    low, high = sorted((round(wall.replace(tzinfo=zone, fold=1).timestamp()), moment))
    before = _local(low, zone).utcoffset()
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if _local(middle, zone).utcoffset() == before else (low, middle)
    return high


def _local(moment: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(moment, UTC).astimezone(zone)


def _maximum(effective: EffectiveLimits, now: float, zone: tzinfo, used: Mapping[date, int]) -> Sourced[Amount]:
    most = _smaller(effective.max, _by_hours(effective.hours, now, zone))
    spent = _spent(effective.budget, day_of(now, zone), used)
    return _smaller(most, Sourced(effective.guaranteed.value, spent.source)) if spent else most


def _smaller(first: Sourced[Amount], second: Sourced[Amount]) -> Sourced[Amount]:
    return second if amount_key(second.value) < amount_key(first.value) else first


def _part(found: Sourced[T], part: LimitPart) -> Sourced[T]:
    return replace(found, source=replace(found.source, part=part))


def _by_hours(hours: TimeLimits[Hours], now: float, zone: tzinfo) -> Sourced[Amount]:
    """Return the most that hours allow: the most generous alternative, and at most the cap."""
    alternatives = [_least(items, now, zone) for items in hours.alternatives]
    most = max(alternatives, key=lambda found: amount_key(found.value), default=_ANY)
    return _smaller(most, _least(hours.cap, now, zone))


def _least(items: Iterable[Sourced[Hours]], now: float, zone: tzinfo) -> Sourced[Amount]:
    """Return the smallest maximum of the hours that apply now."""
    active = [
        _part(item.map(lambda hours: hours.max), LimitPart.HOURS) for item in items if _covers(item.value, now, zone)
    ]
    return min(active, key=lambda found: amount_key(found.value), default=_ANY)


def _covers(hours: Hours, now: float, zone: tzinfo) -> bool:
    today = day_of(now, zone)
    spans = (_span(hours, day, zone) for day in (today - DAY, today) if day.weekday() in hours.days)
    return any(start <= now < end for start, end in spans)


def _span(hours: Hours, day: date, zone: tzinfo) -> tuple[int, int]:
    """Return the moments at which the hours that begin on ``day`` start and end."""
    end = hours.end if hours.end > hours.start else hours.end + MINUTES
    return moment_of(day, hours.start, zone), moment_of(day, end, zone)


def _spent(budget: TimeLimits[Budget], today: date, used: Mapping[date, int]) -> Sourced[Budget] | None:
    """Return a budget that is used up and so lowers the maximum, if there is one."""
    capped = next((item for item in budget.cap if _is_spent(item.value, today, used)), None)
    if capped:
        return _part(capped, LimitPart.BUDGET)
    spent = [
        next((item for item in items if _is_spent(item.value, today, used)), None) for items in budget.alternatives
    ]
    return _part(spent[0], LimitPart.BUDGET) if spent and spent[0] and None not in spent else None


def _is_spent(budget: Budget, today: date, used: Mapping[date, int]) -> bool:
    return not isinstance(budget.amount, Unlimited) and _used(budget.window, today, used) >= budget.amount


def _used(window: BudgetWindow, today: date, used: Mapping[date, int]) -> int:
    first, after = window_of(window, today)
    return sum(amount for day, amount in used.items() if first <= day < after)


def _spent_at(budget: Budget, now: float, zone: tzinfo, used: Mapping[date, int], milli: int) -> float:
    """Return when a budget is used up if ``milli`` are held all the time; infinite: not in this window."""
    if isinstance(budget.amount, Unlimited):
        return inf
    today = day_of(now, zone)
    left = budget.amount - _used(budget.window, today, used)
    if left <= 0:
        return now
    end = now + left / milli if milli else inf
    return end if end < moment_of(window_of(budget.window, today)[1], 0, zone) else inf


def _boundaries(effective: EffectiveLimits, now: float, zone: tzinfo, used: Mapping[date, int]) -> Iterator[int]:
    """Yield the moments after ``now`` at which the maximum may change, soonest first.

    Those are the ends of windows, where a budget is used up (or has days that are not yet here, as after a clock was
    set back), and the boundaries of hours that lower the maximum.
    """
    today = day_of(now, zone)
    every = [item.value for item in chain(*effective.hours.alternatives, effective.hours.cap)]
    hours = [item for item in every if amount_key(item.max) < amount_key(effective.max.value)]
    later = any(day > today for day in used)
    budgets = [item.value for item in chain(*effective.budget.alternatives, effective.budget.cap)]
    windows = {budget.window for budget in budgets if later or _is_spent(budget, today, used)}
    moments: set[int] = set()
    for day in (today + ahead * DAY for ahead in range(-1, HORIZON)) if hours or windows else ():
        if any(window_of(window, day)[0] == day for window in windows):
            moments.add(moment_of(day, 0, zone))
        for item in hours:
            if day.weekday() in item.days:
                moments.update(_span(item, day, zone))
        if moments:
            tomorrow = moment_of(day + DAY, 0, zone)  # what begins later is not before
            yield from sorted(moment for moment in moments if now < moment < tomorrow)
            moments = {moment for moment in moments if moment >= tomorrow}
