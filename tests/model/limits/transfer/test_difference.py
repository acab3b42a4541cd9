"""Dry runs of an import."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner, object_name
from jupyter_gpu.model.limits.preview import preview
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.limits.transfer.difference import Difference, FieldChange, LineOutcome, difference
from jupyter_gpu.model.limits.transfer.row import ImportedRow
from jupyter_gpu.model.limits.transfer.table import read_table, write_table

from ..strategies import limits_of, subjects

ANN = Limit(Subject(SubjectKind.USER, "ann"), max=1000, weight=2, object_name="a")
BOB = Limit(Subject(SubjectKind.USER, "bob"), max=1000, object_name="b")
ML = Limit(Subject(SubjectKind.GROUP, "ml"), max=1000, object_name="ml", members=frozenset({"ann"}))


def imported(text: str, *current: Limit, remove: bool = False) -> Difference:
    """The difference that a table makes; a space stands for a separator."""
    return difference(current, read_table(text.replace(" ", ",")), replace=remove)


def outcomes(found: Difference) -> list[tuple[str, str, int | None]]:
    return [(line.outcome.value, line.subject.name if line.subject else "", line.line) for line in found.lines]


def test_difference_says_what_an_import_does() -> None:
    """Each limit is added, changed, removed or left, and a sentence counts them."""
    text = "kind name max\nUser ann 2\nUser bob 1\nUser new 3\n"
    found = imported(text, ANN, BOB, ML, remove=True)
    assert outcomes(found) == [
        ("changed", "ann", 2),
        ("unchanged", "bob", 3),
        ("added", "new", 4),
        ("removed", "ml", None),
    ]
    assert found.lines[0].changes == (FieldChange("max", "1", "2"), FieldChange("weight", 2, None))
    assert found.lines[2].changes == (FieldChange("max", None, "3"),)
    assert found.sentence() == "1 added, 1 changed, 1 removed, 1 unchanged."
    assert not found.refused
    assert outcomes(imported(text, ANN, BOB, ML))[-1] == ("added", "new", 4)


def test_difference_as_json() -> None:
    """The JSON leaves out what is empty."""
    found = json.loads(json.dumps(imported("kind name max\nUser ann 2\nUser\n", ANN).to_json()))
    assert found["sentence"] == "0 added, 1 changed, 0 removed, 0 unchanged, 1 refused."
    assert found["refused"] is True
    assert found["lines"][0] == {
        "outcome": "changed",
        "subject": {"kind": "User", "name": "ann"},
        "line": 2,
        "changes": [{"field": "max", "from": "1", "to": "2"}, {"field": "weight", "from": 2, "to": None}],
        "object": "a",
    }
    assert set(found["lines"][1]) == {"outcome", "line", "errors"}


def test_limit_of_a_tool_is_only_repeated() -> None:
    """A limit that a tool keeps is not changed or removed by an import; the same again is no change."""
    kept = replace(ANN, managed_by="Helm")
    (line,) = imported("kind name max\nUser ann 2\n", kept).lines
    assert (line.outcome, line.errors) == (
        LineOutcome.REFUSED,
        ("Helm keeps this limit, and would undo the change; change it there.",),
    )
    assert imported("kind name max weight\nUser ann 1 2\n", kept).lines[0].outcome is LineOutcome.UNCHANGED
    assert imported("kind\n", kept, remove=True).lines == ()


def test_limits_of_one_subject_are_not_changed() -> None:
    """An import cannot know which of two objects is meant."""
    (line,) = imported("kind name max weight\nUser ann 1 2\n", replace(ANN, object_name="z"), ANN).lines
    assert line.errors == ("2 limits are about user ann: a, z. Remove all but one of them first.",)


def test_mirrored_properties_are_no_limits_to_change() -> None:
    """A written limit for a group whose properties are mirrored is added beside them."""
    mirrored = replace(ML, managed_by=HUB_PROPERTIES)
    assert outcomes(imported("kind name max\nGroup ml 2\n", mirrored, remove=True)) == [("added", "ml", 2)]


def test_unreadable_limit_is_written_again() -> None:
    """A field that cannot be read is changed by an import, even to the value that it counted as."""
    bad = read_limit({"spec": {"subject": {"kind": "User", "name": "ann"}, "max": "x"}})
    assert outcomes(imported("kind name max\nUser ann 0\n", bad)) == [("changed", "ann", 2)]


def test_result_keeps_what_an_import_does_not_have() -> None:
    """After an import a group has its members, an object its name and the fields of a newer version."""
    newer = replace(ML, extra={"colour": "red"})
    current = [ANN, BOB, newer]
    found = imported("kind name max\nGroup ml 2\nUser new 3\n", *current, remove=True)
    assert found.result(current) == [
        replace(newer, max=2000),
        Limit(Subject(SubjectKind.USER, "new"), max=3000, object_name=object_name("User", "new")),
    ]
    assert imported("kind name max\nUser ann x\n", *current).result(current) == current


def test_effects_of_an_import_are_foreseen() -> None:
    """The limits after an import, several new ones among them, have a preview."""
    found = imported("kind name max\nUser ann 1\nUser bob 1\nUser eve 1\n")
    users = [Account(Owner("User", name, "jhub"), used=2000) for name in ("ann", "bob", "eve")]
    assert preview([], found.result([]), users, 0, UTC).sentence() == "3 users will lose 3 GPUs in 10 minutes."


some = st.lists(
    limits_of(subjects(st.sampled_from(["a", "b", "c"]))).map(lambda limit: replace(limit, managed_by="")),
    max_size=4,
    unique_by=lambda limit: limit.subject,
)


@given(some, some)
def test_import_of_an_export_makes_both_the_same(current: list[Limit], other: list[Limit]) -> None:
    """Importing an export of another cluster leaves the same limits, and once more changes nothing."""
    rows = read_table(write_table(other))
    result = difference(current, rows, replace=True).result(current)
    assert sorted((limit.spec() for limit in result), key=str) == sorted((limit.spec() for limit in other), key=str)
    again = difference(result, rows, replace=True)
    assert {line.outcome for line in again.lines} <= {LineOutcome.UNCHANGED}


def test_row_without_a_subject_is_refused() -> None:
    """A row without a subject is reported, and nothing else."""
    (line,) = difference([ANN], [ImportedRow(7, None, ("x",))]).lines
    assert (line.outcome, line.line, line.before) == (LineOutcome.REFUSED, 7, None)
