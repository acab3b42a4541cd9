"""Hours and budgets, compared with a reference that steps through the minutes of a clock."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from functools import lru_cache
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.limits.amount import UNLIMITED, Amount, amount_key
from jupyter_gpu.model.limits.calendar import HORIZON, day_of, in_force, moment_of, runs_out, window_of
from jupyter_gpu.model.limits.effective import EffectiveLimits, TimeLimits
from jupyter_gpu.model.limits.source import LimitPart, Source, Sourced, SourceKind
from jupyter_gpu.model.limits.times import HOUR, MINUTES, Budget, BudgetWindow, Hours

from .strategies import hours as any_hours

BERLIN = ZoneInfo("Europe/Berlin")
UTC = UTC
MIDNIGHTS = [
    ("Europe/Berlin", date(2026, 3, 29)),  # 02:00 → 03:00
    ("Europe/Berlin", date(2026, 10, 25)),  # 03:00 → 02:00
    ("America/New_York", date(2026, 11, 1)),
    ("Australia/Lord_Howe", date(2026, 10, 4)),  # half an hour
    ("America/Sao_Paulo", date(2018, 11, 4)),  # 00:00 → 01:00
    ("America/Sao_Paulo", date(2018, 2, 18)),  # 00:00 → 23:00 of the day before
    ("Pacific/Apia", date(2011, 12, 30)),  # the whole day is skipped
    ("Asia/Kolkata", date(2026, 5, 3)),
    ("UTC", date(2026, 5, 3)),
]
"""Days on which clocks change, and some on which they don't."""
GROUP = Source(SourceKind.GROUP, "ml")
CAP = Source(SourceKind.CAP)
WEEKDAY_NIGHT = Hours(0, frozenset(range(5)), 22 * 60, 6 * 60)


def at(text: str, zone: tzinfo = BERLIN, fold: int = 0) -> float:
    """Seconds since 1970 of a time on a clock."""
    return datetime.fromisoformat(text).replace(tzinfo=zone, fold=fold).timestamp()


def local(moment: float, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(moment, UTC).astimezone(zone).replace(tzinfo=None)


@lru_cache(maxsize=1024)
def first_shown(day: date, minutes: int, zone: tzinfo) -> int:
    """The first minute at which clocks show so late or later, found by looking at the clock every minute."""
    wall = datetime(day.year, day.month, day.day) + timedelta(minutes=minutes)
    moment = int(wall.replace(tzinfo=UTC).timestamp()) - 15 * 3600
    moment -= 24 * 3600 if zone == ZoneInfo("Pacific/Apia") else 0
    while local(moment, zone) < wall:
        moment += 60
    return moment


def with_hours(*items: Hours, most: Amount = UNLIMITED, guaranteed: int = 0) -> EffectiveLimits:
    hours = TimeLimits((tuple(Sourced(item, GROUP) for item in items),))
    return EffectiveLimits(max=Sourced(most), guaranteed=Sourced(guaranteed), hours=hours)


def with_budgets(*items: Budget, guaranteed: int = 1000, cap: tuple[Budget, ...] = ()) -> EffectiveLimits:
    """Budgets of groups, one each."""
    budget = TimeLimits(tuple((Sourced(item, GROUP),) for item in items), tuple(Sourced(item, CAP) for item in cap))
    return EffectiveLimits(max=Sourced(4000), guaranteed=Sourced(guaranteed), budget=budget)


@pytest.mark.parametrize(("name", "day"), MIDNIGHTS)
@settings(max_examples=30)
@given(ahead=st.integers(-1, 1), minutes=st.integers(0, 2 * MINUTES))
def test_moment_is_the_first_that_the_clock_shows(name: str, day: date, ahead: int, minutes: int) -> None:
    """A time that comes twice is its first; one that is skipped is the moment at which clocks change."""
    zone, day = ZoneInfo(name), day + timedelta(days=ahead)
    assert moment_of(day, minutes, zone) == first_shown(day, minutes, zone)


def reference(effective: EffectiveLimits, now: float, zone: tzinfo) -> Amount:
    """The maximum in force by hours, from the clock alone."""

    def least(items: tuple[Sourced[Hours], ...]) -> Amount:
        found: list[Amount] = [UNLIMITED]
        for item in (sourced.value for sourced in items):
            for day in (day_of(now, zone) + timedelta(days=ahead) for ahead in (-2, -1, 0, 1)):
                end = item.end + (MINUTES if item.end <= item.start else 0)
                inside = first_shown(day, item.start, zone) <= now < first_shown(day, end, zone)
                if day.weekday() in item.days and inside:
                    found.append(item.max)
        return min(found, key=amount_key)

    groups = [least(items) for items in effective.hours.alternatives] or [UNLIMITED]
    return min(effective.max.value, max(groups, key=amount_key), least(effective.hours.cap), key=amount_key)


@settings(max_examples=40, deadline=None)
@given(
    st.sampled_from(MIDNIGHTS),
    st.lists(st.lists(any_hours, max_size=2), max_size=2),
    st.lists(any_hours, max_size=1),
    st.integers(-2 * MINUTES, 2 * MINUTES),
)
def test_hours_are_those_of_the_clock(
    where: tuple[str, date], groups: list[list[Hours]], cap: list[Hours], minutes: int
) -> None:
    """The maximum is that of the clock, over changes of the clocks too, and holds until it changes and no longer."""
    zone = ZoneInfo(where[0])
    alternatives = tuple(tuple(Sourced(item, GROUP) for item in items) for items in groups)
    limits = EffectiveLimits(
        max=Sourced(4000), hours=TimeLimits(alternatives, tuple(Sourced(item, CAP) for item in cap))
    )
    now = moment_of(where[1], 0, zone) + 60 * minutes
    found = in_force(limits, now, zone, {})
    assert found.max.value == reference(limits, now, zone)
    if found.until is None:
        assert all(
            in_force(limits, now + 3600 * hour, zone, {}).max.value == found.max.value for hour in range(0, 200, 23)
        )
        return
    assert found.until > now
    assert reference(limits, found.until, zone) != found.max.value
    between = [now + (found.until - now) * part / 8 for part in range(8)]
    assert {in_force(limits, moment, zone, {}).max.value for moment in (*between, found.until - 1)} == {found.max.value}


@pytest.mark.parametrize(
    ("now", "most", "until"),
    [
        ("2026-05-04T21:59:59", 2000, "2026-05-04T22:00"),  # a Monday
        ("2026-05-04T22:00:00", 0, "2026-05-05T06:00"),
        ("2026-05-05T05:59:59", 0, "2026-05-05T06:00"),
        ("2026-05-08T23:00:00", 0, "2026-05-09T06:00"),  # Friday night ends on Saturday
        ("2026-05-09T22:00:00", 2000, "2026-05-11T22:00"),
        ("2026-05-11T03:00:00", 2000, "2026-05-11T22:00"),  # Sunday night is none
    ],
)
def test_night_of_a_weekday_ends_on_the_next_day(now: str, most: int, until: str) -> None:
    """Hours over midnight belong to the day on which they begin."""
    found = in_force(with_hours(WEEKDAY_NIGHT, most=2000), at(now), BERLIN, {})
    assert (found.max.value, found.until) == (most, at(until))


def test_next_change_is_the_soonest() -> None:
    """Hours that begin on the next day come before the end of those that began today, if they are sooner."""
    night, morning = Hours(2000, start=22 * 60, end=12 * 60), Hours(1000, frozenset({1}), 8 * 60, 9 * 60)
    found = in_force(with_hours(night, morning), at("2026-05-04T23:00"), BERLIN, {})
    assert (found.max.value, found.until) == (2000, at("2026-05-05T08:00"))


def test_hours_do_not_flap_when_clocks_are_set_back() -> None:
    """A boundary within the hour that comes twice is passed once, and hours that follow each other leave no gap."""
    late, early = Hours(0, start=22 * 60, end=2 * 60 + 30), Hours(1000, start=2 * 60 + 30, end=8 * 60)
    limits = with_hours(late, early)
    first = at("2026-10-25T02:30")
    assert in_force(limits, first - 1, BERLIN, {}).until == first
    moments = [first + 600 * step for step in range(20)]
    assert {in_force(limits, moment, BERLIN, {}).max.value for moment in moments} == {1000}
    assert in_force(limits, first, BERLIN, {}).until == at("2026-10-25T08:00") == first + 6.5 * 3600


def test_hours_that_the_clock_skips_do_not_come() -> None:
    """Hours within the hour that is skipped have no length on that day; those around it are shorter by it."""
    day = "2026-03-29"
    skipped = in_force(with_hours(Hours(0, start=130, end=170)), at(f"{day}T01:00"), BERLIN, {})
    assert (skipped.max.value, skipped.until) == (UNLIMITED, at("2026-03-30T02:10"))
    around = in_force(with_hours(Hours(0, start=60, end=240)), at(f"{day}T01:00"), BERLIN, {})
    assert around.until == at(f"{day}T04:00") == at(f"{day}T01:00") + 2 * 3600


def test_hours_name_their_limit() -> None:
    """The source is the limit with the hours that hold now, and says so."""
    limits = with_hours(Hours(1000), most=2000, guaranteed=2000)
    found = in_force(limits, 0, UTC, {})
    assert found.max == Sourced(1000, Source(SourceKind.GROUP, "ml", part=LimitPart.HOURS))
    assert found.max.source.sentence() == "the hours for group ml"
    assert found.guaranteed == found.max
    assert found.until is None
    assert in_force(with_hours(Hours(3000), most=2000), 0, UTC, {}).max == Sourced(2000)


MAY4 = date(2026, 5, 4)  # a Monday


@pytest.mark.parametrize(
    ("window", "used", "spent"),
    [
        (BudgetWindow.DAY, {MAY4: HOUR}, True),
        (BudgetWindow.DAY, {MAY4: HOUR - 1}, False),
        (BudgetWindow.DAY, {date(2026, 5, 3): 9 * HOUR}, False),
        (BudgetWindow.WEEK, {date(2026, 5, 3): 9 * HOUR}, False),  # the Sunday before
        (BudgetWindow.MONTH, {date(2026, 5, 3): 9 * HOUR}, True),
        (BudgetWindow.MONTH, {date(2026, 4, 30): 9 * HOUR}, False),
        (BudgetWindow.MONTH, {date(2026, 5, 1): HOUR // 2, MAY4: HOUR // 2}, True),
        (BudgetWindow.WEEK, {date(2026, 5, 5): HOUR}, True),  # the clock was set back
        (BudgetWindow.DAY, {date(2026, 5, 5): 9 * HOUR}, False),
        (BudgetWindow.WEEK, {date(2026, 5, 11): 9 * HOUR}, False),
        (BudgetWindow.WEEK, {}, False),
    ],
)
def test_budget_counts_the_days_of_its_window(window: BudgetWindow, used: Mapping[date, int], spent: bool) -> None:
    """A budget counts the days of its window of the calendar, a day that is not yet here among them."""
    found = in_force(with_budgets(Budget(HOUR, window)), at("2026-05-04T12:00"), BERLIN, used)
    assert found.max.value == (1000 if spent else 4000)
    assert found.max.source.part == (LimitPart.BUDGET if spent else None)


@pytest.mark.parametrize(
    ("window", "ends"),
    [(BudgetWindow.DAY, "2026-10-26"), (BudgetWindow.WEEK, "2026-10-26"), (BudgetWindow.MONTH, "2026-11-01")],
)
def test_spent_budget_returns_with_the_next_window(window: BudgetWindow, ends: str) -> None:
    """A window ends at midnight on the clock, also where the day has 25 hours; then the budget is whole again."""
    used = {date(2026, 10, 25): HOUR}
    limits = with_budgets(Budget(HOUR, window))
    found = in_force(limits, at("2026-10-25T00:30"), BERLIN, used)
    assert (found.max.value, found.until) == (1000, at(f"{ends}T00:00"))
    assert in_force(limits, at(f"{ends}T00:00"), BERLIN, used).max == Sourced(4000)


def test_day_that_is_not_yet_here_is_foreseen() -> None:
    """After a clock was set back, the use of a later day lowers the maximum on that day."""
    limits = with_budgets(Budget(HOUR, BudgetWindow.DAY))
    found = in_force(limits, at("2026-05-04T12:00"), BERLIN, {date(2026, 5, 6): HOUR})
    assert (found.max.value, found.until) == (4000, at("2026-05-06T00:00"))


def test_budgets_of_groups_are_alternatives() -> None:
    """Another group's budget that is not used up keeps the maximum; the cap's is enough to lower it."""
    day, month = Budget(HOUR, BudgetWindow.DAY), Budget(2 * HOUR, BudgetWindow.MONTH)
    now = at("2026-05-04T12:00")
    used = {MAY4: HOUR}
    assert in_force(with_budgets(day, month), now, BERLIN, used).max == Sourced(4000)
    assert in_force(with_budgets(day, month), now, BERLIN, {MAY4: 2 * HOUR}).max.value == 1000
    assert in_force(with_budgets(day, Budget(UNLIMITED, BudgetWindow.DAY)), now, BERLIN, used).max == Sourced(4000)
    capped = in_force(with_budgets(month, cap=(day,)), now, BERLIN, used)
    assert capped.max == Sourced(1000, Source(SourceKind.CAP, part=LimitPart.BUDGET))
    assert capped.until == at("2026-05-05T00:00")


def test_budget_leaves_what_is_guaranteed() -> None:
    """A used-up budget lowers to the guarantee and never raises what hours lower further."""
    limits = with_budgets(Budget(0, BudgetWindow.DAY), guaranteed=1000)
    night = TimeLimits(((Sourced(Hours(500), GROUP),),))
    both = EffectiveLimits(limits.max, limits.guaranteed, hours=night, budget=limits.budget)
    assert in_force(limits, 0, UTC, {}).guaranteed == Sourced(1000)
    assert in_force(both, 0, UTC, {}).max.source.part is LimitPart.HOURS
    assert in_force(both, 0, UTC, {}).guaranteed.value == 500


@given(st.dates(date(1975, 1, 1), date(2100, 1, 1)), st.sampled_from(BudgetWindow))
def test_windows_follow_each_other(day: date, window: BudgetWindow) -> None:
    """Each day is in one window, which ends where the next begins, within the days that are looked ahead."""
    first, after = window_of(window, day)
    assert first <= day < after
    assert window_of(window, first) == window_of(window, after - timedelta(days=1)) == (first, after)
    assert window_of(window, after)[0] == after
    assert (after - first).days < HORIZON - 7
    assert {BudgetWindow.DAY: True, BudgetWindow.WEEK: first.weekday() == 0, BudgetWindow.MONTH: first.day == 1}[window]


@pytest.mark.parametrize(
    ("limits", "milli", "end"),
    [
        (with_budgets(Budget(HOUR, BudgetWindow.DAY)), 1000, "13:00"),
        (with_budgets(Budget(HOUR, BudgetWindow.DAY)), 4000, "12:15"),
        (with_budgets(Budget(HOUR, BudgetWindow.DAY)), 0, None),
        (with_budgets(Budget(HOUR, BudgetWindow.DAY)), 83, None),  # after midnight
        (with_budgets(Budget(0, BudgetWindow.DAY)), 1000, None),  # already
        (with_budgets(Budget(UNLIMITED, BudgetWindow.DAY)), 1000, None),
        (with_budgets(), 1000, None),
        (with_budgets(Budget(HOUR, BudgetWindow.DAY), Budget(2 * HOUR, BudgetWindow.MONTH)), 1000, "14:00"),
        (
            with_budgets(Budget(HOUR, BudgetWindow.DAY), Budget(24 * HOUR, BudgetWindow.MONTH)),
            1000,
            None,
        ),  # a new day begins before
        (with_budgets(Budget(HOUR, BudgetWindow.DAY), Budget(UNLIMITED, BudgetWindow.DAY)), 1000, None),
        (with_budgets(Budget(2 * HOUR, BudgetWindow.DAY), cap=(Budget(HOUR, BudgetWindow.DAY),)), 1000, "13:00"),
        (with_budgets(cap=(Budget(HOUR, BudgetWindow.WEEK),)), 1000, "13:00"),
    ],
)
def test_budget_runs_out_as_it_is_used(limits: EffectiveLimits, milli: int, end: str | None) -> None:
    """Holding GPUs on and on uses a budget up at a moment that is known, if it is in this window."""
    found = runs_out(limits, at("2026-05-04T12:00"), BERLIN, {}, milli)
    assert found == (at(f"2026-05-04T{end}") if end else None)
    if found:
        used = {MAY4: round((found - at("2026-05-04T12:00")) * milli)}
        assert in_force(limits, found, BERLIN, used).max.source.part is LimitPart.BUDGET
