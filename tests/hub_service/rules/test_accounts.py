"""Accounts as they are kept: smaller, and the same in all that is shown."""

from __future__ import annotations

from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.account import ALL, Account
from jupyter_gpu.model.limits.amount import Amount
from jupyter_gpu.model.limits.effective import NO_LIMITS, EffectiveLimits
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.source import Source, Sourced, SourceKind
from jupyter_gpu_hub.rules.accounts import read
from jupyter_gpu_hub.rules.day_hours import DayHours

HOURS = st.dictionaries(st.dates(), st.integers(0, ALL), max_size=35)


@given(HOURS, HOURS)
def test_packed_hours_are_those_that_were_packed(hours: dict[date, int], others: dict[date, int]) -> None:
    """In order, with every operation of a mapping."""
    packed = DayHours(hours)
    assert list(packed.items()) == sorted(hours.items())
    assert list(packed) == sorted(hours)
    assert len(packed) == len(hours)
    assert all(packed[day] == amount for day, amount in hours.items())
    assert (packed == DayHours(others)) is (hours == others)
    assert (packed == others) is (hours == others)


def test_day_without_use_is_not_there() -> None:
    """It is no zero."""
    with pytest.raises(KeyError):
        DayHours({date(2026, 5, 4): 1})[date(2026, 5, 5)]


def test_account_is_kept_without_its_limits() -> None:
    """They follow from limits; the maximum in force, times, use and hours do not."""
    limited: Sourced[Amount] = Sourced(2000, Source(SourceKind.GROUP, "ml", "root", 1777802400, "group-ml"))
    account = Account(
        owner=Owner("User", "ann", "jhub"),
        max=limited,
        used=1000,
        waiting=500,
        over_since=1777802400,
        limits=EffectiveLimits(max=limited),
        hours={date(2026, 5, 4) + timedelta(days=i): i * 1000 for i in range(35)},
    )
    found = read({"spec": account.spec(), "status": account.status()})
    assert found is not None
    assert found.limits == NO_LIMITS
    assert (found.owner, found.max, found.used, found.waiting) == (account.owner, limited, 1000, 500)
    assert (found.over_since, dict(found.hours)) == (1777802400, account.hours)
    assert found.problem == ""


def test_account_of_nobody_is_none() -> None:
    """Its owner cannot be read."""
    assert read({"spec": {}, "status": {"used": "1"}}) is None
