"""The file with the GPU-hours of a machine's users."""

from __future__ import annotations

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.account import ALL, Account
from jupyter_gpu.model.limits.machine_accounts import STALE, MachineAccounts, read_accounts
from jupyter_gpu.model.limits.machine_file import HUB
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.strict import FieldError

DAY = date(2026, 5, 4)
ITEM = {"spec": {"owner": {"kind": "User", "name": "ann", "hub": HUB}}}


def text(**changes: Any) -> bytes:
    """Return a file with these changes."""
    return json.dumps({"format": 1, "boot": "b", "counted": 1, "items": [ITEM], **changes}).encode()


@given(
    st.floats(0, 1e9),
    st.dictionaries(
        st.sampled_from(["ann", "ünï", "a/b", "12001"]), st.tuples(st.integers(0, 10**6), st.integers(0, 10**10))
    ),
)
def test_file_keeps_what_was_written(counted: float, users: dict[str, tuple[int, int]]) -> None:
    """To the milli-GPU-second, and the moment to the millisecond."""
    owners = {Owner("User", name, HUB): about for name, about in users.items()}
    known = {owner: Account(owner, used=used, hours={DAY: hours}) for owner, (used, hours) in owners.items()}
    found = read_accounts(MachineAccounts("boot", counted, known).encode().encode())
    assert found.accounts == known
    assert found.boot == "boot"
    assert abs(found.counted - counted) <= 0.001


def test_accounts_of_another_boot_or_of_long_ago_are_not_current() -> None:
    """Nor those of a time that is yet to come."""
    found = MachineAccounts("b", 1000, {})
    assert found.is_current("b", 1000 + STALE - 1)
    assert not found.is_current("b", 1000 + STALE)
    assert not found.is_current("b", 1000 - STALE - 1)
    assert not found.is_current("other", 1000)


def test_day_that_cannot_be_read_counts_as_more_than_any_budget() -> None:
    """So a damaged account lifts no budget."""
    found = read_accounts(text(items=[{**ITEM, "status": {"hours": {"2026-05-04": "many"}}}]))
    assert found.accounts[Owner("User", "ann", HUB)].hours == {DAY: ALL}


@pytest.mark.parametrize(
    "bad", [b"{", b"[]", text(format=2), text(boot=None), text(counted=-1), text(items=[{}]), text(items=None)]
)
def test_file_that_is_none_is_refused(bad: bytes) -> None:
    """An account without an owner would let somebody's use go."""
    with pytest.raises(FieldError):
        read_accounts(bad)
