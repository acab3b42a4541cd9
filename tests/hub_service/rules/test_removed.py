"""The record of removed limits."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from jupyter_gpu.model.limits.changes import LimitChange
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu_hub.rules import audit
from jupyter_gpu_hub.rules.removed import (
    CHANGES_OF_ONE,
    MAX_BYTES,
    MOST,
    OBJECT,
    REMOVED,
    RemovedLimit,
    is_record,
    read_record,
    record_object,
    updated,
)

from .builders import ANN, known, limit_object

AT = 1777802400
SUBJECT = Subject(SubjectKind.USER, "ann", "jhub")
REMOVAL = LimitChange("root", AT, {"max": "2"}, None)


LONG = (LimitChange("ü" * 250, AT, {"max": "2"}, {"max": "3"}),) * CHANGES_OF_ONE


def removed(number: int, name: str = "ann", by: str = "root") -> RemovedLimit:
    """Return a removed limit."""
    subject = Subject(SubjectKind.USER, name, "jhub")
    return RemovedLimit(f"object-{number}", f"uid-{number}", subject, (LimitChange(by, AT, {"max": "2"}, None),))


def test_removed_limit_has_its_newest_changes_and_the_removal() -> None:
    """They are rows of the list of changes like others."""
    changes = [{"by": f"user-{i}", "at": "2026-05-03T10:00:00Z", "to": {"max": str(i)}} for i in range(7)]
    found = RemovedLimit.of(known(ANN, name="u", changes=changes, max=2), SUBJECT, REMOVAL)
    assert [change.by for change in found.changes] == ["user-3", "user-4", "user-5", "user-6", "root"]
    assert len(found.changes) == CHANGES_OF_ONE
    last = audit.rows([found.known()])[-1].to_json()
    assert last == {
        "object": "u",
        "subject": ANN,
        "by": "root",
        "at": "2026-05-03T10:00:00Z",
        "from": {"max": "2"},
    }


def test_record_comes_back() -> None:
    """As it was written, and it is recognized."""
    record = updated((), [removed(1), removed(2, "<img onerror>")])
    made = record_object(record, "jupyter-gpu-hub")
    assert is_record(made)
    assert read_record(made) == record


@pytest.mark.parametrize("text", ["", "{", "[1]", '[{"object": "x"}]', "null"])
def test_record_that_cannot_be_read_is_empty(text: str) -> None:
    """The next removal begins a new one."""
    made = record_object((), "x")
    made["metadata"]["annotations"][REMOVED] = text
    assert read_record(made) == ()
    assert read_record({}) == ()


@pytest.mark.parametrize(
    "item", [{}, {"spec": 1}, limit_object(ANN, name=OBJECT), limit_object({"kind": "Default"}, name="x")]
)
def test_limit_is_no_record(item: dict[str, Any]) -> None:
    """Whatever its name is: a limit that counts is never hidden."""
    assert not is_record(item)


def test_record_limits_no_one() -> None:
    """Not even a user of its name in a hub."""
    index = LimitIndex([read_limit(record_object(updated((), [removed(1)]), "x"))])
    for owner in (Owner("User", "removed-limits", "jhub"), Owner("User", "ann", "jhub"), Owner("Namespace", OBJECT)):
        assert index.of(owner) == []


def test_limit_that_is_there_after_all_is_forgotten() -> None:
    """And one that is recorded twice is there once, as it was recorded last."""
    record = updated((), [removed(1), removed(2)])
    assert updated(record, [], ["uid-1"]) == (removed(2),)
    assert updated(record, [removed(1, by="ann")]) == (removed(2), removed(1, by="ann"))


@settings(max_examples=20)
@given(st.lists(st.integers(1, 250), min_size=1, max_size=3))
@example([250])
def test_record_is_bounded(sizes: list[int]) -> None:
    """In number and in length; the newest stay."""
    record: tuple[RemovedLimit, ...] = ()
    for turn, size in enumerate(sizes):
        added = [replace(removed(1000 * turn + i, "ü" * 255), changes=LONG) for i in range(size)]
        record = updated(record, added)
        assert record[-1] == added[-1]
        assert len(record) <= MOST
        assert len(record_object(record, "x")["metadata"]["annotations"][REMOVED].encode()) <= MAX_BYTES
