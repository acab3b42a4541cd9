"""The file with a machine's limits as objects, and its changes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.kube.errors import Conflict, Invalid, NotFound
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, MANAGED_BY, Subject, SubjectKind
from jupyter_gpu.model.limits.machine_file import limits_of, reclaims
from jupyter_gpu.model.limits.owner import object_name
from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_hub.rules.known import KnownLimit
from jupyter_gpu_hub.rules.machine import limit_document
from jupyter_gpu_hub.rules.machine.limit_document import (
    LimitDocument,
    at_home,
    created,
    in_file,
    mirrored,
    patched,
    read,
    removed,
)

HUB = "jhub"
ANN = object_name("User", "ann", HUB)
ML = object_name("Group", "ml", HUB)
DEFAULT = object_name("Default")
BY_HAND: dict[str, Any] = {
    "_comment": "who wrote this",
    "limits": [
        {"subject": {"kind": "User", "name": "ann"}, "max": 2, "note": "until June"},
        {"subject": {"kind": "Default"}, "max": "tow"},
        {"spec": {"subject": {"kind": "Group", "name": "ml"}, "max": 4}, "status": {"members": ["zoe"]}},
    ],
    "reclaim": True,
}


def file(value: Any = BY_HAND) -> LimitDocument:
    """Return a file, read."""
    return read(json.dumps(value).encode(), HUB)


def new(subject: Any, **spec: Any) -> dict[str, Any]:
    """Return an object to create."""
    return {"metadata": {"labels": {}}, "spec": {"subject": subject, **spec}}


def items(after: LimitDocument) -> list[Any]:
    """Return the items as they would be written."""
    found: list[Any] = json.loads(after.text())["limits"]
    return found


def test_users_and_groups_are_those_of_the_hub() -> None:
    """However the file names the hub; the default is everyone's."""
    hubs = [{"kind": "User", "name": "ann", **hub} for hub in ({}, {"hub": "local"})]
    for subject in hubs:
        (entry,) = read(json.dumps([{"subject": subject}]).encode(), HUB).entries
        assert entry.object["spec"]["subject"] == {"kind": "User", "name": "ann", "hub": HUB}
        assert objects.name(entry.object) == ANN
    assert file().objects[DEFAULT]["spec"]["subject"] == {"kind": "Default"}
    assert at_home(Subject(SubjectKind.USER, "ann", "other"), HUB).hub == "other"
    assert in_file(Subject(SubjectKind.USER, "ann", "other"), HUB).hub == "other"


def test_change_keeps_all_that_it_is_not_about() -> None:
    """Unknown fields, an item that can't be read, the order, and what stands beside the list."""
    after = patched(file(), ANN, {"spec": {"max": "3"}})
    written = json.loads(after.text())
    assert {key: value for key, value in written.items() if key != "limits"} == {
        "_comment": "who wrote this",
        "reclaim": True,
    }
    assert written["limits"][1:] == BY_HAND["limits"][1:]
    assert written["limits"][0]["spec"] == {
        "subject": {"kind": "User", "name": "ann"},
        "max": "3",
        "note": "until June",
    }
    assert limits_of(after.text().encode(), "root", 0)[0].max == 3000
    assert reclaims(after.text().encode())


def test_list_and_other_names_of_it_stay_as_they_are() -> None:
    """As an export of a cluster has them."""
    item = {"subject": {"kind": "Default"}, "max": 1}
    for value in ([item], {"items": [item], "kind": "List"}):
        after = created(file(value), new({"kind": "User", "name": "bob"}, max=1), "u")
        written = json.loads(after.text())
        found = written if isinstance(written, list) else written.pop("items")
        assert found[0] == item
        assert len(found) == 2
        assert isinstance(written, list) == isinstance(value, list)


def test_missing_file_is_one_without_limits() -> None:
    """The first limit makes it."""
    empty = read(None, HUB)
    assert empty.objects == {}
    assert json.loads(empty.text()) == {"limits": []}
    after = created(empty, new({"kind": "User", "name": "ann", "hub": HUB}, max="1"), "u1")
    assert items(after) == [
        {
            "apiVersion": "jupyter-gpu.io/v1alpha1",
            "kind": "GpuLimit",
            "metadata": {"labels": {}, "uid": "u1"},
            "spec": {"subject": {"kind": "User", "name": "ann"}, "max": "1"},
        }
    ]
    assert objects.uid(after.objects[ANN]) == "u1"


def test_subject_has_one_limit() -> None:
    """A second one is refused; the copy of a group's properties is beside it."""
    with pytest.raises(Conflict, match="already"):
        created(file(), new({"kind": "User", "name": "ann", "hub": HUB}, max="1"), "u")
    properties = {**new({"kind": "Group", "name": "ml", "hub": HUB}, max="1")}
    properties["metadata"] = {"labels": {MANAGED_BY: HUB_PROPERTIES}}
    after = created(file(), properties, "u")
    assert {ML, f"properties-{ML}"} <= after.objects.keys()
    with pytest.raises(Conflict, match="already"):
        created(after, properties, "u")
    assert removed(after, f"properties-{ML}").objects.keys() == file().objects.keys()


def test_limits_of_one_subject_written_by_hand_have_names_and_uids_of_their_own() -> None:
    """Even if one was copied with its uid."""
    one = {"metadata": {"uid": "u"}, "spec": {"subject": {"kind": "Default"}, "max": 1}}
    found = file([one, one, {**one, "metadata": {"uid": 5}}])
    assert len(found.objects) == 3
    assert len({objects.uid(item) for item in found.objects.values()}) == 3


@pytest.mark.parametrize(
    ("subject", "fields", "why"),
    [
        ({"kind": "User", "name": "ann", "hub": HUB}, {"max": "tow"}, "max"),
        ({"kind": "Namespace", "name": "n"}, {}, "One machine has no namespaces"),
        ({"kind": "User", "name": "ann", "hub": "other"}, {}, "leave the hub out"),
        ({"kind": "Robot"}, {}, "about no one"),
        ({"kind": "User", "name": "bob"}, {"colour": 1}, "does not know the fields"),
    ],
)
def test_limit_that_has_no_meaning_is_not_written(subject: Any, fields: Any, why: str) -> None:
    """With the sentence of the reader."""
    with pytest.raises(Invalid, match=why):
        created(read(None, HUB), new(subject, **fields), "u")


def test_change_is_for_one_version() -> None:
    """Both the object's version and its uid count; a hand edit meanwhile is a conflict."""
    before = file().objects[ANN]
    version, uid = objects.resource_version(before), objects.uid(before)
    after = patched(file(), ANN, {"metadata": {"resourceVersion": version, "uid": uid}, "spec": {"max": "3"}})
    assert objects.uid(after.objects[ANN]) == uid
    for stale in ({"resourceVersion": version}, {"uid": "other"}):
        with pytest.raises(Conflict):
            patched(after, ANN, {"metadata": stale, "spec": {"max": "4"}})
    with pytest.raises(Conflict):
        removed(after, ANN, uid, version)
    with pytest.raises(NotFound):
        patched(after, "user-eve", {})
    with pytest.raises(NotFound):
        removed(after, "user-eve")


def test_mirror_changes_its_own_members_alone() -> None:
    """Those written by hand stay, and the version that people see is the same."""
    before = file()
    known = KnownLimit.of(before.objects[ML]).version
    after = patched(before, ML, {"status": {"members": ["ann", "bob"]}}, status=True)
    assert items(after)[2]["status"] == {"members": ["ann", "bob", "zoe"], "mirrored": ["ann", "bob"]}
    assert mirrored(after.objects[ML]) == {"ann", "bob"}
    assert KnownLimit.of(after.objects[ML]).version == known
    again = patched(after, ML, {"status": {"members": ["bob"]}}, status=True)
    assert items(again)[2]["status"]["members"] == ["bob", "zoe"]
    assert mirrored(before.objects[ML]) == frozenset()
    of_spec = patched(
        file([{"subject": {"kind": "Group", "name": "ml"}}]), ML, {"status": {"members": []}}, status=True
    )
    assert items_of_list(of_spec)[0]["status"] == {"members": [], "mirrored": []}


def items_of_list(after: LimitDocument) -> list[Any]:
    """Return the items of a file that is a list."""
    found: list[Any] = json.loads(after.text())
    return found


def test_members_of_the_machines_group_are_shown_and_not_written() -> None:
    """Servers look them up themselves."""
    text = json.dumps(BY_HAND).encode()
    found = read(text, HUB, lambda name: {"ml": ["carl"]}.get(name, []))
    assert found.objects[ML]["status"]["members"] == ["carl", "zoe"]
    assert items(patched(found, ANN, {"spec": {"weight": 2}}))[2]["status"] == {"members": ["zoe"]}


def test_status_that_is_none_has_no_members() -> None:
    """Odd input raises nothing."""
    for status in ("x", {"members": "x", "mirrored": 3}, {"members": [1, "a"]}):
        text = json.dumps([{"spec": {"subject": {"kind": "Group", "name": "ml"}}, "metadata": 1, "status": status}])
        assert mirrored(read(text.encode(), HUB).objects[ML]) == frozenset()


@pytest.mark.parametrize("text", [b"{", b"\xff", b"{}", b'{"limits": 1}', b'{"limits": [{"max": 1}]}', b'["x"]'])
def test_file_that_servers_refuse_is_refused(text: bytes) -> None:
    """Nothing is written into it then."""
    with pytest.raises(FieldError):
        read(text, HUB)


@given(st.lists(st.tuples(st.sampled_from("abc"), st.sampled_from(["0", "1", "unlimited", None])), max_size=8))
def test_any_order_of_changes_comes_to_what_was_said_last(edits: list[tuple[str, str | None]]) -> None:
    """``None`` removes; each state can be read again, with the same objects."""
    found, said = read(None, HUB), dict[str, str]()
    for number, (user, most) in enumerate(edits):
        name, subject = object_name("User", user, HUB), {"kind": "User", "name": user, "hub": HUB}
        if most is None:
            found = removed(found, name) if user in said else found
            said.pop(user, None)
            continue
        make = patched if user in said else created
        found = (
            patched(found, name, {"spec": {"max": most}})
            if make is patched
            else created(found, new(subject, max=most), f"u{number}")
        )
        said[user] = most
        assert read(found.text().encode(), HUB).objects == found.objects
    assert {item["spec"]["subject"]["name"]: item["spec"]["max"] for item in found.objects.values()} == said


def test_reader_and_writer_agree_on_what_can_be_written() -> None:
    """The reason why not is empty for what is written."""
    (limit,) = limits_of(b'[{"subject": {"kind": "Default"}, "max": 1}]', "root", 0)
    assert limit_document.why_not(limit) == ""
