"""The mirror of groups, with a real hub and a real API server."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cluster.testbed import until
from tests.hub import SECONDS

from .world import HUB, World

pytestmark = pytest.mark.cluster

ML = {"kind": "Group", "name": "ml", "hub": HUB}


def members(world: World, name: str) -> list[str]:
    """Return the members in the status of a limit."""
    found: list[str] = world.limit(name).get("status", {}).get("members", [])
    return found


def rows(world: World) -> dict[str, dict[str, Any]]:
    """Return the table of limits, by object or else by the subject's name."""
    found = world.limits.gpu("GET", "limits").json["items"]
    return {row["object"] or row["subject"]["name"]: row for row in found}


def set_properties(world: World, properties: dict[str, Any]) -> None:
    """Set those of group ml, as the hub's own page does."""
    world.script.hub_api("PUT", "groups/ml/properties", properties)


def test_members_follow_the_hub(world: World) -> None:
    """A user who joins has the group's limit, one who leaves has it no more; only groups with limits are written."""
    world.put_limit("ml", subject=ML, max=4)
    world.put_limit("ml-of-all", subject={"kind": "Group", "name": "ml"}, weight=2)
    world.put_limit("ml-of-another", subject={**ML, "hub": "another"}, max=4)
    until(lambda: members(world, "ml") == ["ann", "bob"], SECONDS)
    of_hubs = {HUB: ["ann", "bob"]}
    until(lambda: world.limit("ml-of-all").get("status", {}).get("membersOfHubs") == of_hubs, SECONDS)
    assert world.limits.gpu("GET", "explain/rita").json["limit"]["value"] == "unlimited"
    world.script.hub_api("POST", "groups/ml/users", {"users": ["rita"]})
    try:
        until(lambda: world.limits.gpu("GET", "explain/rita").json["limit"]["value"] == "4", SECONDS)
        assert world.token("rita").gpu("GET", "me").json["sentence"].startswith("You may have 4 GPUs, set for group ml")
    finally:
        world.script.hub_api("DELETE", "groups/ml/users", {"users": ["rita"]})
    until(lambda: members(world, "ml") == ["ann", "bob"], SECONDS)
    assert members(world, "ml-of-another") == []


def test_properties_become_limits(world: World) -> None:
    """They are read-only here, and gone with the properties."""
    set_properties(world, {"jupyter_gpu.max": "4", "jupyter_gpu.weight": "2", "color": "blue"})
    try:
        until(lambda: any(row["mirrored"] for row in rows(world).values()), SECONDS)
        (row,) = [row for row in rows(world).values() if row["mirrored"]]
        assert (row["subject"], row["fields"], row["problem"]) == (ML, {"max": "4", "weight": 2}, None)
        until(lambda: members(world, row["object"]) == ["ann", "bob"], SECONDS)
        tag = {"If-Match": f'"{rows(world)[row["object"]]["version"]}"'}
        assert world.limits.gpu("PATCH", f"limits/{row['object']}", {"set": {"max": 9}}, tag).status in (403, 409)
        written = world.limits.gpu("POST", "limits", {"subject": ML, "set": {"max": 1}})
        assert written.status == 201
        until(lambda: world.limits.gpu("GET", "explain/bob").json["limit"]["value"] == "1", SECONDS)
        set_properties(world, {"jupyter_gpu.max": "3"})
        until(lambda: rows(world)[row["object"]]["fields"] == {"max": "3"}, SECONDS)
    finally:
        set_properties(world, {})
    until(lambda: row["object"] not in rows(world), SECONDS)


def test_nonsense_is_a_row_that_says_so(world: World) -> None:
    """Members that were mirrored before hold on."""
    set_properties(world, {"jupyter_gpu.max": "two"})
    try:
        until(lambda: "ml" in rows(world), SECONDS)
        assert "jupyter_gpu.max" in rows(world)["ml"]["problem"]
        set_properties(world, {"jupyter_gpu.max": "2"})
        until(lambda: any(row["fields"] == {"max": "2"} for row in rows(world).values()), SECONDS)
        set_properties(world, {"jupyter_gpu.max": "two"})
        until(lambda: any(row["problem"] for row in rows(world).values()), SECONDS)
        (row,) = rows(world).values()
        assert row["fields"] == {"max": "2"}
    finally:
        set_properties(world, {})
    until(lambda: not rows(world), SECONDS)


def test_hub_that_is_away_changes_nothing(world: World) -> None:
    """The groups are as they were; the pages say so; when the hub is back, they follow again."""
    world.put_limit("ml", subject=ML, max=4)
    until(lambda: members(world, "ml") == ["ann", "bob"], SECONDS)
    good = world.service.api_url
    world.service.api_url = "http://127.0.0.1:9/hub/api"
    world.service.stop()
    world.service.start()
    try:
        version = world.limit("ml")["metadata"]["resourceVersion"]
        until(lambda: "not mirrored" in world.service.log.read_text(), SECONDS)
        assert members(world, "ml") == ["ann", "bob"]
        assert world.limit("ml")["metadata"]["resourceVersion"] == version
        answer = world.limits.gpu("GET", "limits")
        assert (answer.status, answer.json["reason"]) == (503, "Unavailable")
        assert "Limits that are set hold" in answer.json["message"]
    finally:
        world.service.api_url = good
        world.service.stop()
        world.service.start()
    until(lambda: world.limits.gpu("GET", "limits").json["problem"] is None, SECONDS)
