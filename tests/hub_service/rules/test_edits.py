"""Changes of limits: what is written, and what is refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.changes import CHANGES, MOST_CHANGES
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import object_name
from jupyter_gpu.model.limits.read_limit import changes_of, read_limit
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_hub.rules.edits import Create, Delete, Edit, Patch, Prepared, conflict, prepare
from jupyter_gpu_hub.rules.known import KnownLimit, find
from jupyter_gpu_hub.rules.refusals import Refusal

from .builders import ANN, HUB, ML, known, limit_object, mirrored

SUBJECT = Subject(SubjectKind.USER, "ann", HUB)
NOW = 1_777_888_999


def edit(fields: Any, **more: Any) -> Edit:
    """Return an edit of ann's limit."""
    return Edit.from_json({"subject": ANN, "set": fields, **more})


def merged(item: dict[str, Any], patch: Any) -> Any:
    """Return an object after a merge patch (RFC 7386)."""
    if not isinstance(patch, dict) or not isinstance(item, dict):
        return patch
    both = {key: merged(item.get(key, {}), value) for key, value in patch.items() if value is not None}
    return {**{key: value for key, value in item.items() if key not in patch}, **both}


def after(prepared: Prepared, current: KnownLimit | None) -> dict[str, Any]:
    """Return the object as the API server has it after the write."""
    match prepared.write:
        case Create(made):
            return dict(made)
        case Patch(_, patch):
            assert current is not None
            notes = {CHANGES: current.recorded} if current.recorded else {}
            metadata = {"name": current.name, "uid": current.uid, "annotations": notes}
            changed = merged({"metadata": metadata, "spec": current.limit.spec()}, dict(patch))
            assert isinstance(changed, dict)
            return changed
    raise AssertionError(prepared.write)


def test_new_limit_is_created_with_its_change() -> None:
    """The name is that which every writer gives; amounts are written as every reader writes them."""
    prepared = prepare(edit({"max": 2, "priority": {"max": 5}, "weight": None}), None, "root", NOW)
    made = after(prepared, None)
    assert made["metadata"]["name"] == object_name("User", "ann", HUB)
    assert made["spec"] == {"subject": ANN, "max": "2", "priority": {"max": 5}}
    (change,) = changes_of(made)
    assert (change.by, change.at, change.before) == ("root", NOW, None)
    assert change.after == {"max": "2", "priority": {"max": 5}}
    assert read_limit(made).managed_by == ""
    assert prepared.limit is not None
    assert prepared.limit.max == 2000


def test_change_patches_what_it_names() -> None:
    """Other fields stay, a null one goes, and the patch is for the version that was seen."""
    current = known(ANN, name="mine", version="42", max=2, weight=5, grace="10m")
    prepared = prepare(edit({"max": "1500m", "weight": None}), current, "root", NOW)
    assert isinstance(prepared.write, Patch)
    assert prepared.write.patch["metadata"]["resourceVersion"] == "42"
    assert prepared.write.patch["metadata"]["uid"] == "uid-mine"
    assert after(prepared, current)["spec"] == {"subject": ANN, "max": "1500m", "grace": "10m"}


def test_fields_of_a_newer_version_stay() -> None:
    """An older service must not remove what it does not know."""
    current = known(ANN, max=2, shiny={"a": 1})
    assert after(prepare(edit({"max": 3}), current, "root", NOW), current)["spec"]["shiny"] == {"a": 1}


def test_changes_are_kept_up_to_the_last_twenty() -> None:
    """The oldest goes first."""
    old = [{"by": f"p{i}", "at": "2026-05-03T10:00:00Z"} for i in range(MOST_CHANGES)]
    current = known(ANN, max=1, changes=old)
    found = changes_of(after(prepare(edit({"max": 2}), current, "root", NOW), current))
    assert len(found) == MOST_CHANGES
    assert (found[0].by, found[-1].by) == ("p1", "root")


def test_same_values_write_nothing() -> None:
    """However they are spelt."""
    assert prepare(edit({"max": "2000m"}), known(ANN, max=2), "root", NOW).write is None
    assert prepare(edit(None), None, "root", NOW).write is None


def test_removal_is_for_the_version_that_was_seen() -> None:
    """The change says what was there."""
    prepared = prepare(edit(None), known(ANN, name="mine", version="42", max=2), "root", NOW)
    assert prepared.write == Delete("mine", "uid-mine", "42")
    assert (prepared.change.before, prepared.change.after, prepared.limit) == ({"max": "2"}, None, None)


@pytest.mark.parametrize(
    ("version", "current", "theirs"),
    [
        ("41", known(ANN, version="42", max=2), {"max": "2"}),
        ("", known(ANN, version="42", max=2), {"max": "2"}),
        ("41", None, None),
    ],
)
def test_change_of_another_version_shows_both_values(version: str, current: KnownLimit | None, theirs: Any) -> None:
    """An edit is refused if the limit was changed, created or removed meanwhile."""
    with pytest.raises(Refusal) as refused:
        prepare(edit({"max": 5}, version=version), current, "root", NOW)
    assert refused.value.status == 409
    assert refused.value.details["yours"] == {"max": 5}
    assert refused.value.details["theirs"] == theirs
    assert refused.value.details["version"] == (current.version if current else "")


def test_conflict_names_the_other_person() -> None:
    """Removal has no value of its own."""
    change = {"by": "eve", "at": "2026-05-03T10:00:00Z"}
    refused = conflict(edit(None), known(ANN, max=1, changes=[change]))
    assert "eve changed it last" in refused.message
    assert refused.details["yours"] is None
    assert "removed" in conflict(edit({}), None).message


@pytest.mark.parametrize("label", ["Helm", HUB_PROPERTIES])
def test_limits_of_tools_are_locked(label: str) -> None:
    """The tool would undo the change."""
    with pytest.raises(Refusal, match="would undo") as refused:
        prepare(edit({"max": 5}), known(ANN, label=label, max=1), "root", NOW)
    assert refused.value.status == 403


def test_cap_is_not_ours() -> None:
    """It is for administrators of the cluster."""
    with pytest.raises(Refusal, match="cluster administrators"):
        prepare(Edit.from_json({"subject": {"kind": "Cap"}, "set": {"max": 1}}), None, "root", NOW)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"max": "tow"}, "max"),
        ({"guaranteed": 3, "max": 2}, ""),
        ({"hours": [{"from": "25:00", "to": "01:00", "max": 1}]}, "hours"),
        ({"weight": 0}, "weight"),
    ],
)
def test_bad_values_are_refused_with_a_sentence(fields: dict[str, Any], named: str) -> None:
    """The field is named."""
    with pytest.raises(FieldError) as error:
        prepare(edit(fields), None, "root", NOW)
    assert error.value.field == named


@pytest.mark.parametrize(
    "body",
    [
        [],
        {},
        {"subject": ANN},
        {"subject": {"kind": "King"}, "set": {}},
        {"subject": ANN, "set": []},
        {"subject": ANN, "set": {"maximum": 1}},
        {"subject": ANN, "set": {}, "version": 7},
        {"subject": ANN, "set": {}, "more": 1},
    ],
)
def test_edits_are_checked(body: Any) -> None:
    """Anything else is no edit."""
    with pytest.raises(FieldError):
        Edit.from_json(body)


def test_version_may_be_empty() -> None:
    """An edit may require that there is no limit yet."""
    assert edit({}, version="").version == ""
    assert edit({}).version is None


def test_object_of_a_subject_is_found() -> None:
    """Several limits for a subject: one that people may change is edited, never a copy of properties."""
    locked, first, second = known(ANN, name="a", label="Helm"), known(ANN, name="b"), known(ANN, name="c")
    assert find(SUBJECT, [second, locked, first]) == first
    assert find(SUBJECT, [locked]) == locked
    group = Subject(SubjectKind.GROUP, "ml", HUB)
    assert find(group, [mirrored()]) is None
    assert find(group, [mirrored(), known(ML, name="written")]) == known(ML, name="written")


@given(
    st.dictionaries(st.sampled_from(["max", "guaranteed", "weight", "memory", "nonsense"]), st.integers() | st.text()),
    st.none() | st.just(limit_object(ANN, max=2, weight=3)),
)
def test_any_edit_is_refused_or_readable(fields: dict[str, Any], current: dict[str, Any] | None) -> None:
    """The written object can be read again, and says what was asked for."""
    item = KnownLimit.of(current) if current else None
    try:
        prepared = prepare(edit(fields), item, "root", NOW)
    except FieldError:
        return
    if prepared.write is not None:
        made = after(prepared, item)
        assert read_limit(made).problem == ""
        json.loads(made["metadata"]["annotations"][CHANGES])
        assert prepare(edit(fields), KnownLimit.of(made), "root", NOW).write is None
