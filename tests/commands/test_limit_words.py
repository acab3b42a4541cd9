"""Words of a terminal for limits."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.cli.rules.limit_words import fields, subject, table, usage_table
from jupyter_gpu.model.limits.limit import Subject, SubjectKind
from jupyter_gpu.model.limits.times import HOUR
from jupyter_gpu.model.limits.transfer.usage import Month, UsageRow
from jupyter_gpu.model.strict import FieldError

ANN = Subject(SubjectKind.USER, "ann", "jhub")


@pytest.mark.parametrize(
    ("word", "hub", "read"),
    [
        ("user:ann", "jhub", ANN),
        ("User:ann", "", Subject(SubjectKind.USER, "ann")),
        ("user:a/b:c", "", Subject(SubjectKind.USER, "a/b:c")),
        ("group:ml", "jhub", Subject(SubjectKind.GROUP, "ml", "jhub")),
        ("namespace:jobs", "jhub", Subject(SubjectKind.NAMESPACE, "jobs")),
        ("default", "jhub", Subject(SubjectKind.DEFAULT)),
        ("cap", "", Subject(SubjectKind.CAP)),
    ],
)
def test_subjects_are_read(word: str, hub: str, read: Subject) -> None:
    """A name may have any letters; the hub is that of users and groups."""
    assert subject(word, hub) == read


@pytest.mark.parametrize("word", ["ann", "", "user", "user:", "default:x", "king:ann"])
def test_other_words_are_no_subjects(word: str) -> None:
    """The sentence says what to write."""
    with pytest.raises(FieldError):
        subject(word, "")


def test_fields_are_read_as_in_a_table() -> None:
    """Each as it is stored; one that is to be inherited is None."""
    words = ["max=2", "guaranteed=500m", "priority=3", "weight=inherit", "models=A100=1; H100=unlimited", "remote=true"]
    assert fields(ANN, [*words, "budget=100 per Month", "hours=Mon-Tue 08:00-18:00=1"]) == {
        "max": "2",
        "guaranteed": "500m",
        "priority": {"max": 3},
        "weight": None,
        "models": [{"model": "A100", "max": "1"}, {"model": "H100", "max": "unlimited"}],
        "remote": True,
        "budget": {"gpuHours": 100, "window": "Month"},
        "hours": [{"days": ["Mon", "Tue"], "from": "08:00", "to": "18:00", "max": "1"}],
    }
    assert fields(ANN, ["max=inherit"]) == {"max": None}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["max"], "sets no field"),
        (["maximum=2"], "sets no field"),
        (["max=1", "max=2"], "twice"),
        (["max=tow"], "tow"),
        (["max="], "max=inherit"),
        (["guaranteed=3", "max=2"], "guaranteed"),
        (["hours=always"], "hours"),
    ],
)
def test_bad_fields_are_told(words: list[str], said: str) -> None:
    """With what to write."""
    with pytest.raises(FieldError, match=said):
        fields(ANN, words)


def row(**more: Any) -> dict[str, Any]:
    """Return a row as the REST has it."""
    body = {"subject": {"kind": "User", "name": "ann", "hub": "jhub"}, "fields": {"max": "2"}, "managedBy": None}
    return {**body, "changed": None, "problem": None, **more}


def test_table_has_a_line_for_each_limit() -> None:
    """Unset values are dashes; limits that a tool keeps, or that cannot be read, are marked."""
    lines = table(
        [
            row(changed={"by": "root", "at": "2026-05-03T10:00:00Z"}),
            row(
                subject={"kind": "Default"},
                fields={"priority": {"max": 5}, "hours": [], "grace": "10m"},
                managedBy="Helm",
            ),
            row(subject=None, fields={}, problem="It is about no one."),
            row(subject={"kind": "Group", "name": "a\nb"}),
        ]
    ).splitlines()
    assert lines[0].split() == ["SUBJECT", "HUB", "MAX", "GUARANTEED", "WEIGHT", "PRIORITY", "OTHERS", "LAST", "CHANGE"]
    assert lines[1].split() == ["user:ann", "jhub", "2", "-", "-", "-", "-", "root,", "2026-05-03T10:00:00Z"]
    assert lines[2].split() == ["default", "-", "-", "-", "-", "5", "hours,grace", "kept", "by", "Helm"]
    assert "can't be read: It is about no one." in lines[3]
    assert len(lines) == 5


def test_use_of_a_month_has_a_line_for_each_owner() -> None:
    """Incomplete figures are marked, and the mark is explained; an empty month says so."""
    month = Month(2026, 10)
    rows = [
        UsageRow(SubjectKind.USER, "ann\n", "jhub", 5 * HOUR // 2, 3, True),
        UsageRow(SubjectKind.NAMESPACE, "jobs", "", HOUR, 1, False),
    ]
    lines = usage_table(rows, month).splitlines()
    assert lines[0].split() == ["OWNER", "HUB", "GPU-HOURS", "DAYS"]
    assert lines[1].split()[1:] == ["jhub", "2.50", "3"]
    assert lines[2].split() == ["namespace:jobs", "-", "1.00", "+", "1"]
    assert lines[3].startswith("+ some days")
    assert usage_table([], month).endswith("No GPU was used in 2026-10.")
    assert len(usage_table(rows[:1], month).splitlines()) == 2
