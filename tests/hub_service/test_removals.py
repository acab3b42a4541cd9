"""Removed limits in the list of changes, with a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from jupyter_gpu_hub.rules.removed import OBJECT
from tests.cluster.testbed import until
from tests.hub import SECONDS

from .world import HUB, World

pytestmark = pytest.mark.cluster


def edit(name: str, fields: dict[str, Any] | None) -> dict[str, Any]:
    """Return an edit of a user's limit; ``None`` removes it."""
    return {"subject": {"kind": "User", "name": name, "hub": HUB}, "set": fields}


def rows(world: World, search: str) -> list[tuple[str, Any, Any]]:
    """Return the newest changes, newest first."""
    items = world.limits.gpu("GET", f"audit?search={search}&size=500").json["items"]
    return [(item["by"], item.get("from"), item.get("to")) for item in items]


def test_removal_is_in_the_list_of_changes(world: World) -> None:
    """With the changes before it; the record is no limit, and a new limit for the subject is listed beside it."""
    root = world.token("root")
    made = root.gpu("POST", "limits", edit("ann", {"max": 2}))
    name = made.json["object"]
    world.until_known(name)
    assert root.gpu("DELETE", f"limits/{name}", None, {"If-Match": made.headers["ETag"]}).status == 204
    until(lambda: world.limits.gpu("GET", f"limits/{name}").status == 404, SECONDS)
    assert sorted(rows(world, "ann"), key=str) == [
        ("root", None, {"max": "2"}),
        ("root", {"max": "2"}, None),
    ]
    assert world.limits.gpu("GET", "limits").json["total"] == 0
    assert world.limits.gpu("GET", f"limits/{OBJECT}").status == 404
    assert world.limit(OBJECT)["spec"] == {
        "subject": {"kind": "User", "name": "removed-limits", "hub": "jupyter-gpu.io/none"}
    }
    assert root.gpu("POST", "limits", edit("ann", {"max": 3})).status == 201
    until(lambda: ("root", None, {"max": "3"}) in rows(world, "ann"), SECONDS)
    assert ("root", {"max": "2"}, None) in rows(world, "ann")


def test_many_removals_at_once_are_all_recorded(world: World) -> None:
    """They share a few writes, and none is lost."""
    names = [f"many-{number}" for number in range(40)]
    for fields in ({"max": 1}, None):
        done = world.limits.gpu("POST", "limits/bulk", {"edits": [edit(name, fields) for name in names]})
        assert done.json["counts"]["refused"] == 0
        last = world.limits.gpu("GET", "limits?search=many").json
        until(lambda: world.limits.gpu("GET", "limits?search=many").json["total"] in (0, 40), SECONDS, str(last))
    until(lambda: world.limits.gpu("GET", "limits?search=many").json["total"] == 0, SECONDS)
    removals = [row for row in rows(world, "many") if row[2] is None]
    assert len(removals) == 40


def test_removal_that_is_refused_is_not_recorded(world: World) -> None:
    """The limit stays, and no one is told that it is gone."""
    made = world.limits.gpu("POST", "limits", edit("eve", {"max": 2}))
    name = made.json["object"]
    world.until_known(name)
    world.plane.kubectl("patch", "gpulimit", name, "--type=merge", "-p", '{"spec": {"max": 3}}')
    refused = world.limits.gpu("DELETE", f"limits/{name}", None, {"If-Match": made.headers["ETag"]})
    assert refused.status == 409
    assert [row for row in rows(world, "eve") if row[2] is None] == []
    world.plane.kubectl("delete", "gpulimit", name)
    until(lambda: world.limits.gpu("GET", f"limits/{name}").status == 404, SECONDS)
    assert rows(world, "eve") == []


def test_limit_of_the_records_name_is_left_alone(world: World) -> None:
    """It counts and is shown; a removal says what is in the way."""
    world.put_limit(OBJECT, subject={"kind": "User", "name": "bob", "hub": HUB}, max=1)
    made = world.limits.gpu("POST", "limits", edit("eve", {"max": 2}))
    world.until_known(made.json["object"])
    refused = world.limits.gpu("DELETE", f"limits/{made.json['object']}", None, {"If-Match": made.headers["ETag"]})
    assert refused.status == 409
    assert "give it another name" in refused.json["message"]
    assert world.limit(OBJECT)["spec"]["max"] in (1, "1")
