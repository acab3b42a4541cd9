"""Accounts of owners, and effective limits as JSON."""

from __future__ import annotations

import json
from datetime import date, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.account import ALL, Account, read_account
from jupyter_gpu.model.limits.amount import UNLIMITED
from jupyter_gpu.model.limits.effective import NO_LIMITS, effective
from jupyter_gpu.model.limits.effective_json import effective_json, read_effective
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.source import Source, Sourced, SourceKind
from jupyter_gpu.model.limits.times import HOUR, Budget, BudgetWindow
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu.model.strict import FieldError

from .. import strategies as any_
from .strategies import amounts, limit_sets, odd_names, owners, sources

ANN = Owner("User", "ann", "jhub")
DAY = date(2026, 5, 4)
moments = st.none() | st.integers(0, 4_000_000_000)
accounts = st.builds(
    Account,
    owner=st.builds(Owner, st.just("User"), odd_names, odd_names) | st.builds(Owner, st.just("Namespace"), odd_names),
    max=st.builds(Sourced, amounts, sources),
    until=moments,
    used=st.integers(0, MAX_MILLI),
    waiting=st.integers(0, MAX_MILLI),
    over_since=moments,
    give_back_at=moments,
    limits=st.builds(effective, owners, limit_sets),
    hours=st.dictionaries(st.dates(), st.integers(0, ALL), max_size=3),
)


def obj(account: Account) -> dict[str, Any]:
    """The object of an account, as the API server returns it."""
    return json.loads(json.dumps({"spec": account.spec(), "status": account.status()}))  # type: ignore[no-any-return]


@given(accounts)
def test_account_survives_a_round_trip(account: Account) -> None:
    """An account is read as it was written."""
    assert read_account(obj(account)) == account


@given(owners, limit_sets)
def test_effective_survives_a_round_trip(owner: Owner, limits: list[Limit]) -> None:
    """Effective limits are read as they were written, sources included."""
    found = effective(owner, limits)
    assert read_effective(json.loads(json.dumps(effective_json(found)))) == found


def test_effective_json_is_short() -> None:
    """Only what a limit sets is written, in the words of the spec."""
    assert effective_json(NO_LIMITS) == {}
    limit = Limit(
        Subject(SubjectKind.GROUP, "ml"),
        max=500,
        priority_max=5,
        models={"A100": UNLIMITED},
        budget=Budget(HOUR, BudgetWindow.DAY),
        members=frozenset({"ann"}),
    )
    source = {"source": {"kind": "Group", "name": "ml"}}
    assert effective_json(effective(ANN, [limit])) == {
        "max": {"value": "500m", **source},
        "priority": {"value": 5, **source},
        "models": {"A100": {"value": "unlimited", **source}},
        "budget": {"alternatives": [[{"value": {"gpuHours": 1, "window": "Day"}, **source}]]},
    }


@pytest.mark.parametrize(
    "body",
    [
        [],
        {"max": 2},
        {"max": {"value": 2}},
        {"max": {"value": "x", "source": {"kind": "Cap"}}},
        {"hours": {"alternatives": [{}]}},
        {"models": []},
    ],
)
def test_bad_effective_json_is_refused(body: Any) -> None:
    """Anything else is refused by the reader's own error."""
    with pytest.raises(FieldError):
        read_effective(body)


def test_account_is_read_by_people() -> None:
    """The object of an account has words and times that people read."""
    account = Account(
        ANN,
        max=Sourced(2000, Source(SourceKind.GROUP, "ml")),
        until=1777924800,
        used=2500,
        over_since=1777888800,
        hours={DAY: 5 * HOUR // 4},
    )
    assert account.object_name.startswith("user-ann-")
    assert account.spec() == {"owner": {"kind": "User", "name": "ann", "hub": "jhub"}}
    assert account.status() == {
        "max": "2",
        "source": {"kind": "Group", "name": "ml"},
        "until": "2026-05-04T20:00:00Z",
        "used": "2500m",
        "waiting": "0",
        "overSince": "2026-05-04T10:00:00Z",
        "limits": {},
        "hours": {"2026-05-04": "1.25"},
    }


@given(any_.json_values | st.fixed_dictionaries({"spec": any_.json_values, "status": any_.json_values}))
def test_any_object_is_an_account_or_none(value: Any) -> None:
    """Reading never raises."""
    found = read_account(value)
    assert found is None or found.status()


@pytest.mark.parametrize(
    "owner",
    [
        None,
        "ann",
        {"kind": "Group", "name": "ml"},
        {"kind": "User", "name": "ann"},
        {"kind": "User", "name": "", "hub": "jhub"},
        {"kind": "User", "name": 5, "hub": "jhub"},
        {"kind": "Namespace", "name": "jobs", "hub": "jhub"},
    ],
)
def test_account_of_no_one_is_none(owner: Any) -> None:
    """An account must say whose it is, and a user has a hub."""
    assert read_account({"spec": {"owner": owner}}) is None


def test_unreadable_status_is_as_if_not_written() -> None:
    """Each field that cannot be read is reported, and the others stand."""
    bad = {"max": "x", "used": "unlimited", "overSince": "soon", "limits": [], "hours": [], "waiting": "1", "source": 5}
    found = read_account({"spec": Account(ANN).spec(), "status": bad})
    assert found is not None
    assert (found.used, found.waiting, found.over_since, found.hours) == (0, 1000, None, {})
    for key in ("max", "used", "overSince", "limits", "hours", "source"):
        assert key in found.problem
    assert read_account({"spec": Account(ANN).spec(), "status": "x"}) == Account(ANN)


def test_unreadable_day_lifts_no_budget() -> None:
    """A day whose use cannot be read counts as more than any budget; the others are read."""
    hours = {"2026-05-04": "x", "2026-05-05": "unlimited", "2026-05-06": "1", "May": "1"}
    found = read_account({"spec": Account(ANN).spec(), "status": {"hours": hours}})
    assert found is not None
    assert found.hours == {DAY: ALL, DAY + timedelta(days=1): ALL, DAY + timedelta(days=2): HOUR}
    assert "The use on 2026-05-04 counts as more than any budget: 'x' is not" in found.problem
    assert "'May' in 'hours' is no day" in found.problem
