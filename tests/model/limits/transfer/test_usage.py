"""Use of a month as a table."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.account import ALL, KEPT_DAYS, Account
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.times import HOUR
from jupyter_gpu.model.limits.transfer.cells import expose
from jupyter_gpu.model.limits.transfer.usage import COLUMNS, Month, UsageRow, usage, write_usage
from jupyter_gpu.model.strict import FieldError
from tests.model.limits.strategies import odd_names

ANN, BOB, JOBS = Owner("User", "ann", "hub"), Owner("User", "bob", "hub"), Owner("Namespace", "jobs")
OCTOBER = Month(2026, 10)


def account(owner: Owner, **hours: float) -> Account:
    """Return an account with GPU-hours by day: ``d1001`` is 1 October 2026."""
    days = {date(2026, int(key[1:3]), int(key[3:])): round(value * HOUR) for key, value in hours.items()}
    return Account(owner, hours=days)


def group(name: str, *members: str, hub: str = "hub") -> Limit:
    """Return a group's limit."""
    return Limit(Subject(SubjectKind.GROUP, name, hub), members=frozenset(members), object_name=name)


def test_days_of_the_month_are_added_up() -> None:
    """Days before and after are not in it; who used nothing in it has no row."""
    accounts = [account(ANN, d0930=9, d1001=1.5, d1031=2, d1101=9), account(JOBS, d0901=1)]
    (row,) = usage(accounts, (), OCTOBER)
    assert row == UsageRow(SubjectKind.USER, "ann", "hub", round(3.5 * HOUR), 2, True)
    assert row.to_json(OCTOBER) == {
        "month": "2026-10",
        "kind": "User",
        "name": "ann",
        "hub": "hub",
        "gpuHours": "3.5",
        "days": 2,
        "complete": True,
    }


def test_groups_have_the_use_of_their_members() -> None:
    """A user in two groups counts for both; another hub's user of that name for neither."""
    accounts = [account(ANN, d1001=1), account(BOB, d1001=2), account(Owner("User", "ann", "lab"), d1001=4)]
    accounts.append(account(JOBS, d1002=8))
    limits = [group("ml", "ann", "bob"), group("all", "ann", hub=""), group("empty", "eve"), Limit(None)]
    found = [(row.kind.value, row.name, row.hub, row.amount // HOUR) for row in usage(accounts, limits, OCTOBER)]
    assert found == [
        ("Namespace", "jobs", "", 8),
        ("User", "ann", "hub", 1),
        ("User", "bob", "hub", 2),
        ("User", "ann", "lab", 4),
        ("Group", "all", "", 5),
        ("Group", "ml", "hub", 3),
    ]


def test_group_of_every_hub_has_the_use_of_each_hubs_members() -> None:
    """Another hub's user of a member's name is none."""
    both = replace(group("ml", hub=""), hub_members={"one": frozenset({"ann"}), "two": frozenset()})
    accounts = [account(Owner("User", "ann", "one"), d1001=3), account(Owner("User", "ann", "two"), d1001=5)]
    found = usage(accounts, [both], OCTOBER)
    assert [row.amount for row in found if row.kind is SubjectKind.GROUP] == [3 * HOUR]


def test_days_that_are_not_kept_any_more_are_told() -> None:
    """An account keeps the newest days: a month that began before the first of them may lack some."""
    days = [date(2026, 10, 10) + timedelta(days=number) for number in range(KEPT_DAYS)]
    full = Account(ANN, hours=dict.fromkeys(days, HOUR))
    (row,) = usage([full], [group("ml", "ann")], OCTOBER)[:1]
    assert (row.days, row.complete) == (22, False)
    assert [row.complete for row in usage([full], [group("ml", "ann")], OCTOBER)] == [False, False]
    assert usage([full], (), Month(2026, 11))[0].complete
    fewer = Account(ANN, hours=dict.fromkeys(days[1:], HOUR))
    assert usage([fewer], (), OCTOBER)[0].complete


def test_day_that_cannot_be_read_is_not_billed() -> None:
    """It counts as more than any budget elsewhere; here the row says that it is not complete."""
    (row,) = usage([Account(ANN, hours={date(2026, 10, 1): ALL})], (), OCTOBER)
    assert (row.amount, row.days, row.complete) == (0, 0, False)


@given(odd_names, st.integers(0, 10**9), st.booleans())
def test_row_survives_json(name: str, amount: int, complete: bool) -> None:
    """Hours are exact."""
    row = UsageRow(SubjectKind.USER, name, "hub", amount, 3, complete)
    assert UsageRow.from_json(row.to_json(OCTOBER)) == row


@pytest.mark.parametrize(
    "change", [{"gpuHours": "unlimited"}, {"gpuHours": -1}, {"days": 32}, {"kind": "Pod"}, {"name": ""}]
)
def test_other_json_is_refused(change: dict[str, object]) -> None:
    """It is the answer of a program that we do not know."""
    row = UsageRow(SubjectKind.USER, "ann", "hub", 1, 1, True)
    with pytest.raises(FieldError):
        UsageRow.from_json({**row.to_json(OCTOBER), **change})


@given(odd_names)
def test_any_name_survives_the_table(name: str) -> None:
    """No cell is a formula, and each name is read back as it was."""
    rows = usage([account(Owner("User", name, "hub"), d1001=0.5)], (), OCTOBER)
    lines = list(csv.reader(io.StringIO(write_usage(rows, OCTOBER), newline="")))
    assert tuple(lines[0]) == COLUMNS
    assert [expose(cell) for cell in lines[1]] == ["2026-10", "User", name, "hub", "0.5", "1", "true"]
    assert not any(cell.startswith(tuple("=+-@\t\r\n")) for line in lines for cell in line)
    assert write_usage(rows, OCTOBER, bom=True) == "\ufeff" + write_usage(rows, OCTOBER)


@given(st.lists(st.tuples(st.dates(date(2026, 8, 1), date(2026, 12, 31)), st.integers(0, 10**9)), max_size=KEPT_DAYS))
def test_months_add_up_to_the_whole(days: list[tuple[date, int]]) -> None:
    """Each day is in one month."""
    hours = dict(days)
    found = [row for number in range(8, 13) for row in usage([Account(ANN, hours=hours)], (), Month(2026, number))]
    assert sum(row.amount for row in found) == sum(hours.values())


@pytest.mark.parametrize(
    "text", ["", "2026", "2026-13", "2026-00", "0000-01", "2026-1", "October", "2026-10-01", "٢٠٢٦-١٠"]
)
def test_what_is_no_month_is_refused(text: str) -> None:
    """The sentence says how to write one."""
    with pytest.raises(FieldError, match="write it as 2026-10"):
        Month.parse(text)
    assert str(Month.parse("2026-10")) == "2026-10"
