"""The table of limits, the list of changes, and documents."""

from __future__ import annotations

from jupyter_gpu_hub.rules import audit, limit_rows
from jupyter_gpu_hub.rules.groups import Group

from .builders import ANN, HUB, ML, known, mirrored

CHANGE = {"by": "root", "at": "2026-05-03T10:00:00Z", "to": {"max": "2"}}


def test_rows_tell_limits_twins_and_problems() -> None:
    """Two objects for one subject name each other; properties that are no limit have a row of their own."""
    groups = [
        Group("ml", frozenset(), {"jupyter_gpu.max": "tow"}),
        Group("new", frozenset(), {"jupyter_gpu.max": "some"}),
        Group("fine", frozenset(), {"jupyter_gpu.max": "3"}),
    ]
    limits = [
        known(ANN, name="b", max=2, changes=[CHANGE]),
        known(ANN, name="a", max="odd"),
        known(ML, name="m", members=["ann", "bob"], label="Helm"),
        mirrored(name="properties", max=1),
        known("nonsense", name="z"),
    ]
    found = limit_rows.rows(limits, groups, HUB)
    bodies = {row.to_json()["object"] or row.name: row.to_json() for row in found}
    assert [row.to_json()["object"] for row in found] == ["a", "b", "m", "properties", "z", None]
    types = {name: [condition["type"] for condition in body["conditions"]] for name, body in bodies.items()}
    assert types["a"] == ["Unreadable", "Conflicting"]
    assert (types["b"], types["m"], types["properties"], types["new"]) == (["Conflicting"], [], ["Overridden"], [])
    assert bodies["b"]["changed"] == {"by": "root", "at": CHANGE["at"]}
    assert "odd" in bodies["a"]["problem"]
    assert (bodies["m"]["managedBy"], bodies["m"]["members"], bodies["m"]["mirrored"]) == ("Helm", 2, False)
    assert "tow" in bodies["properties"]["problem"]
    assert (bodies["properties"]["mirrored"], bodies["properties"]["fields"]) == (True, {"max": "1"})
    assert bodies["z"]["subject"] is None
    assert bodies["new"]["subject"] == {"kind": "Group", "name": "new", "hub": HUB}
    assert "some" in bodies["new"]["problem"]


def test_every_column_of_limits_can_be_sorted() -> None:
    """Unset values come before 0, unlimited last."""
    limits = [
        known({"kind": "Default"}, name="d", max="unlimited"),
        known(ANN, name="a", max=0, guaranteed=0),
        known(ML, name="m", weight=1, changes=[CHANGE]),
        known("nonsense", name="z", max=7, guaranteed=3),
    ]
    found = [*limit_rows.rows(limits, [Group("new", frozenset(), {"jupyter_gpu.x": "1"})], HUB)]
    order = {
        column: [row.name for row in sorted(sorted(found, key=lambda row: row.name), key=key)]
        for column, key in limit_rows.SORTS.items()
    }
    assert order["name"] == ["", "Default", "ann", "ml", "new"]
    assert order["kind"] == ["ann", "ml", "new", "Default", ""]
    assert order["max"] == ["ml", "new", "ann", "", "Default"]
    assert order["guaranteed"][-1] == ""
    assert order["changed"][-1] == "ml"


def test_changes_of_all_limits_are_listed() -> None:
    """With the subject, and searchable by person."""
    found = audit.rows(
        [known(ANN, name="a", changes=[CHANGE, {**CHANGE, "by": "eve"}]), known("odd", changes=[CHANGE])]
    )
    assert [row.to_json()["by"] for row in found] == ["root", "eve", "root"]
    assert found[0].to_json() == {"object": "a", "subject": ANN, **CHANGE}
    assert found[2].to_json()["subject"] is None
    assert "eve" in found[1].text
    assert next(row.by for row in sorted(found, key=audit.SORTS["by"])) == "eve"
    assert {audit.SORTS["at"](row) for row in found} == {1777802400}
    assert audit.SORTS["name"](found[0]).startswith("ann")
