"""The file with the limits of one machine: what it says, and what holds where it can't be read."""

from __future__ import annotations

import json
from datetime import UTC
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.amount import UNLIMITED
from jupyter_gpu.model.limits.calendar import in_force
from jupyter_gpu.model.limits.changes import CHANGES, LimitChange, encode_changes
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu.model.limits.machine_file import (
    HUB,
    NOTHING,
    limits_of,
    problems,
    reclaims,
    stored,
    uncounted,
    unsuitable,
    with_members,
)
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.limits.transfer.document import write_document
from jupyter_gpu.model.strict import FieldError

from .strategies import limits as some_limits

ANN = Owner("User", "ann", HUB)
DAY = 1777802400


def text(*limits: dict[str, Any]) -> bytes:
    """Return a file with these limits."""
    return json.dumps({"limits": list(limits)}).encode()


def limit(kind: str, name: str = "", **fields: Any) -> dict[str, Any]:
    """Return one limit of a file."""
    return {"subject": {"kind": kind, **({"name": name} if name else {})}, **fields}


def test_limit_says_who_wrote_the_file_and_when_unless_it_knows_better() -> None:
    """A line that was written by hand has the owner of the file, one of a command its own record."""
    known = {
        "metadata": {"annotations": {CHANGES: encode_changes([LimitChange("eve", 5)])}},
        "spec": limit("User", "ann", max=2),
    }
    hand, command = limits_of(text(limit("Default", max=1), known), "root", DAY)
    assert hand.source.sentence() == "the default for everyone, set by root on 3 May"
    assert (command.source.by, command.source.at) == ("eve", 5)


def test_export_is_a_file() -> None:
    """The document that the command prints is what the file holds, and a byte order mark does no harm."""
    made = limits_of(text(limit("User", "ann", max=2), limit("Group", "ml", weight=3)), "root", DAY)
    assert limits_of(b"\xef\xbb\xbf" + write_document(made).encode(), "root", DAY) == tuple(
        sorted(made, key=lambda one: one.object_name)
    )


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"{", "not valid JSON"),
        (b"\xff", "not in UTF-8"),
        (b'{"rules": []}', "must be"),
        (b'{"limits": [{"max": 2}]}', "about no one"),
        (text(limit("Usr", "ann", max=2)), "about no one"),
    ],
)
def test_file_that_is_none_is_refused(bad: bytes, why: str) -> None:
    """A file with a limit without a subject is refused too: otherwise a misspelt limit would have no effect."""
    with pytest.raises(FieldError, match=why):
        limits_of(bad, "root", DAY)


def test_field_that_cannot_be_read_counts_as_the_least() -> None:
    """The other fields apply, and administrators get a note."""
    (found,) = limits_of(text(limit("User", "ann", max="many", weight=3)), "root", DAY)
    assert (found.max, found.weight) == (0, 3)
    assert "many" in problems([found])[0]
    assert found.source.by == "root"


@pytest.mark.parametrize(
    ("file", "found"), [(b"[]", False), (b"{}", False), (b'{"reclaim": false}', False), (b'{"reclaim": true}', True)]
)
def test_guaranteed_gpus_are_reclaimed_where_the_file_says_so(file: bytes, found: bool) -> None:
    """A bare list has no place to say it."""
    assert reclaims(file) is found


def test_two_limits_for_one_subject_both_count() -> None:
    """The smaller holds, as in a cluster."""
    index = LimitIndex(limits_of(text(limit("User", "ann", max=3), limit("User", "ann", max=1)), "root", DAY))
    assert len(index) == 2
    assert index.effective(ANN).max.value == 1000


def test_budget_that_is_not_counted_counts_as_used_up() -> None:
    """As if it could not be read; an unlimited one is none."""
    month = {"gpuHours": 10, "window": "Month"}
    known = limits_of(text(limit("User", "ann", max=3, guaranteed=1, budget=month)), "root", DAY)
    assert in_force(LimitIndex(known).effective(ANN), DAY, UTC, {}).max.value == 3000
    now = in_force(LimitIndex(uncounted(known)).effective(ANN), DAY, UTC, {})
    assert (now.max.value, now.max.source.unreadable) == (1000, True)
    free = limits_of(text(limit("User", "ann", max=3, budget="unlimited")), "root", DAY)
    assert uncounted(free) == free


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        (limit("Namespace", "jobs", max=1), "no namespaces"),
        ({"subject": {"kind": "User", "name": "ann", "hub": "j"}, "max": 1}, "leave the hub out"),
        ({"subject": {"kind": "User", "name": "ann", "hub": HUB}, "max": 1}, ""),
        (limit("Cap", max=1), ""),
    ],
)
def test_limit_of_something_else_is_told(spec: dict[str, Any], why: str) -> None:
    """It has no effect here, which is no reason to drop the rest of the file."""
    (found,) = limits_of(text(spec), "root", DAY)
    assert why in unsuitable(found)
    assert why in found.problem
    assert bool(found.problem) == bool(why)


def test_groups_of_the_machine_add_to_the_members_of_the_file() -> None:
    """A group limit counts for the machine's members, and for those that the file names."""
    group = {"spec": limit("Group", "ml", max=4), "status": {"members": ["eve"]}}
    known = limits_of(text(group, limit("Default", max=1)), "root", DAY)
    found = LimitIndex(with_members(known, {"ann": {"ml", "users"}, "bob": {"users"}}))
    most = {name: found.effective(Owner("User", name, HUB)).max.value for name in ("ann", "bob", "eve")}
    assert most == {"ann": 4000, "bob": 1000, "eve": 4000}


def test_nobody_gets_anything_while_limits_are_not_known() -> None:
    """And the source says that they cannot be read."""
    most = LimitIndex(NOTHING).effective(ANN).max
    assert most.value == 0
    assert "cannot be read" in most.source.sentence()


@given(st.lists(some_limits, max_size=4), st.text())
def test_no_file_lifts_a_limit_or_fails_otherwise(limits: list[Limit], other: str) -> None:
    """Whatever a file holds: it is refused, or every limit is one that an object would be, or stricter."""
    for written in (other.encode(errors="replace"), json.dumps([one.spec() for one in limits]).encode()):
        try:
            found = limits_of(written, "root", DAY)
        except FieldError:
            continue
        raw = [read_limit(item) for item, _ in stored(written)]
        assert [one.max for one in found] == [one.max for one in raw]
        assert all(one.changed for one in found)
        assert all(one.budget is None or one.budget.amount in (0, UNLIMITED) for one in uncounted(found))
