"""Imports of limits, and many edits at once."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu.model.limits.transfer.document import write_document
from jupyter_gpu.model.limits.transfer.table import write_table
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_hub.rules.documents import Import, edits_of, limits_after, read_edits
from jupyter_gpu_hub.rules.edits import Edit, prepare
from jupyter_gpu_hub.rules.place import MACHINE

from .builders import ANN, known, limit

DEFAULT = {"kind": "Default"}
LIMITS = [
    limit(ANN, name="a", max=2, weight=3),
    limit(DEFAULT, name="d", max=1),
    limit({"kind": "Cap"}, name="c", max=8),
]
TABLE = "kind,name,hub,max\r\n"


def outcomes(text: str, *, replace: bool = False, table: bool = True) -> list[tuple[str, str]]:
    """Return what an import of ``text`` does to each subject."""
    found = Import(text, table, replace).difference(LIMITS)
    return [
        (line.subject.name or line.subject.kind.value if line.subject else "", line.outcome.value)
        for line in found.lines
    ]


def test_export_changes_nothing() -> None:
    """As a table and as a document, with the cap."""
    for text, table in ((write_table(LIMITS), True), (write_document(LIMITS), False)):
        assert {outcome for _, outcome in outcomes(text, table=table, replace=True)} == {"unchanged"}


def test_import_sets_or_inherits_every_field() -> None:
    """A field with an empty cell is inherited; limits that are not in it stay, unless they are replaced."""
    text = f"{TABLE}User,ann,jhub,5\r\nUser,bob,jhub,1\r\n"
    assert outcomes(text) == [("ann", "changed"), ("bob", "added")]
    found = Import(text, True, replace=True).difference(LIMITS)
    assert [line.outcome.value for line in found.lines] == ["changed", "added", "removed"]
    changed, added, removed = edits_of(found)
    current = known(ANN, name="a", max=2, weight=3)
    assert prepare(changed, current, "root", 1).change.after == {"max": "5"}
    assert prepare(added, None, "root", 1).change.after == {"max": "1"}
    assert (removed.subject.kind, removed.fields) == ("Default", None)


def test_cap_is_neither_changed_nor_removed() -> None:
    """A table that leaves it out keeps it, one that changes it is refused."""
    assert outcomes(f"{TABLE}Cap,,,9\r\n") == [("Cap", "refused")]
    assert ("Cap", "removed") not in outcomes(TABLE, replace=True)


def test_import_of_a_machine_is_about_its_only_hub() -> None:
    """A user without a hub is one of its hub; another hub and a namespace have no meaning there."""
    rows = "User,ann,,5\r\nUser,bob,elsewhere,1\r\nNamespace,lab,,1\r\nUser,cid,jhub,tow\r\n"
    found = Import(f"{TABLE}{rows}", True).difference([limit(ANN, name="a", max=2)], MACHINE, "jhub")
    assert [line.outcome.value for line in found.lines] == ["changed", "refused", "refused", "refused"]
    (edit,) = edits_of(found)
    assert (edit.subject.name, edit.subject.hub) == ("ann", "jhub")


def test_nonsense_is_refused_with_its_line() -> None:
    """Nothing of it is written."""
    found = Import(f"{TABLE}User,ann,jhub,tow\r\n", True).difference(LIMITS)
    assert found.refused
    assert found.lines[0].line == 2
    assert edits_of(found) == []
    assert Import("[", False).difference(LIMITS).refused


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"text": "x"},
        {"text": "x", "format": "xls"},
        {"text": 7, "format": "csv"},
        {"text": "x", "format": "csv", "dryRun": "yes"},
        {"text": "x", "format": "csv", "more": 1},
    ],
)
def test_body_of_an_import_is_checked(body: dict[str, Any]) -> None:
    """Each field has its type."""
    with pytest.raises(FieldError):
        Import.from_json(body)


def test_body_of_an_import_is_read() -> None:
    """Absent switches are off."""
    assert Import.from_json({"text": "", "format": "json"}) == Import("", False)
    body = {"text": "x", "format": "csv", "replace": True, "dryRun": True}
    assert Import.from_json(body) == Import("x", True, True, True)


def test_edits_of_one_request_are_about_different_subjects() -> None:
    """The sentence names the subject."""
    item = {"subject": ANN, "set": {"max": 1}}
    assert len(read_edits([item])) == 1
    with pytest.raises(FieldError, match="two edits of user ann of hub jhub"):
        read_edits([item, item])


def test_limits_after_edits_are_foreseen() -> None:
    """One is changed, one is removed, one is new, and one stays."""
    current = {"ann": known(ANN, name="a", max=2), "default": known(DEFAULT, name="d", max=1)}
    new = {"subject": {**ANN, "name": "bob"}, "set": {"max": 7}}
    prepared = [
        prepare(Edit.from_json({"subject": ANN, "set": {"max": 5}}), current["ann"], "root", 1),
        prepare(Edit.from_json({"subject": DEFAULT, "set": None}), current["default"], "root", 1),
        prepare(Edit.from_json(new), None, "root", 1),
    ]
    found: list[Limit] = limits_after([*(item.limit for item in current.values()), LIMITS[2]], prepared)
    assert [item.max for item in found] == [8000, 5000, 7000]
