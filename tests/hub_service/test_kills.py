"""Kills at each step of a change of limits: of the service, the API server and the hub; all of them real."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.model.limits.changes import CHANGES
from tests import hub
from tests.cluster.testbed import until
from tests.hub import SECONDS

from .browser import Answer
from .world import HUB, World

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]


def subject(name: str) -> dict[str, str]:
    """Return the subject of a user's limit."""
    return {"kind": "User", "name": name, "hub": HUB}


def create(world: World, name: str, most: int) -> Answer:
    """Create a user's limit."""
    return world.limits.gpu("POST", "limits", {"subject": subject(name), "set": {"max": most}})


def patch(world: World, name: str, most: int, tag: str) -> Answer:
    """Change a limit of that version, by the name of its object."""
    return world.limits.gpu("PATCH", f"limits/{name}", {"set": {"max": most}}, {"If-Match": tag})


def remove(world: World, name: str) -> Answer:
    """Remove a limit as it is known now."""
    tag = world.limits.gpu("GET", f"limits/{name}").headers["ETag"]
    return world.limits.gpu("DELETE", f"limits/{name}", None, {"If-Match": tag})


def stored(world: World, name: str) -> list[tuple[str | None, str | None]]:
    """Return the recorded changes of the maximum of a limit; what the limit says is the last of them."""
    found = world.limit(name)
    changes = json.loads(found["metadata"]["annotations"][CHANGES])
    assert str(found["spec"]["max"]) == changes[-1]["to"]["max"]
    return [(maximum(change.get("from")), maximum(change["to"])) for change in changes]


def maximum(fields: dict[str, Any] | None) -> str | None:
    """Return the maximum of the fields of a limit; ``None``: there is no limit."""
    return str(fields["max"]) if fields else None


def removals(world: World, name: str) -> int:
    """Return how often the list of changes says that a user's limit was removed."""
    items = world.limits.gpu("GET", f"audit?search={name}&size=500").json["items"]
    return len([item for item in items if item.get("to") is None])


class Kill:
    """A block in which the service dies at a point; it runs again afterwards."""

    def __init__(self, world: World, point: str) -> None:
        assert point in faults.HUB_POINTS
        self.service, self.point = world.service, point

    def __enter__(self) -> None:
        self.service.crash_at.write_text(self.point)

    def __exit__(self, *_: object) -> None:
        assert self.service.process
        assert self.service.process.wait(SECONDS) == -signal.SIGKILL
        assert not self.service.crash_at.exists()
        self.service.start()


def test_killed_service_has_written_a_limit_with_its_record(world: World) -> None:
    """Nobody has an answer; the same request again tells that the limit says so already, and changes nothing."""
    with Kill(world, "hub:written"):
        assert create(world, "ann", 2).status >= 500
    again = create(world, "ann", 2)
    assert (again.status, again.json["details"]["theirs"]) == (409, {"max": "2"})
    (name,) = (item["object"] for item in world.limits.gpu("GET", "limits").json["items"])
    assert stored(world, name) == [(None, "2")]
    tag = world.limits.gpu("GET", f"limits/{name}").headers["ETag"]
    with Kill(world, "hub:written"):
        assert patch(world, name, 3, tag).status >= 500
    again = patch(world, name, 3, tag)
    assert (again.status, again.json["details"]["theirs"]) == (409, {"max": "3"})
    assert stored(world, name) == [(None, "2"), ("2", "3")]


def test_killed_service_shows_no_limit_as_removed_that_is_there(world: World) -> None:
    """A removal is recorded before it is done: until then it is not shown, and afterwards once."""
    name = create(world, "zoe", 2).json["object"]
    world.until_known(name)
    with Kill(world, "hub:recorded"):
        assert remove(world, name).status >= 500
    assert stored(world, name) == [(None, "2")]
    assert removals(world, "zoe") == 0
    with Kill(world, "hub:written"):
        assert remove(world, name).status >= 500
    assert world.limits.gpu("GET", f"limits/{name}").status == 404
    assert removals(world, "zoe") == 1


@pytest.mark.parametrize("way", ["bulk", "import"])
def test_many_changes_that_a_kill_ended_are_completed_by_the_same_request(world: World, way: str) -> None:
    """Each limit is written whole or not at all, and none twice."""
    names = [f"{way}-{number}" for number in range(20)]

    def send() -> Answer:
        if way == "bulk":
            return world.limits.gpu("POST", "limits/bulk", {"edits": [edit(name) for name in names]})
        text = json.dumps({"limits": [{"subject": subject(name), "max": 1} for name in names]})
        return world.limits.gpu("POST", "limits/import", {"format": "json", "text": text})

    def edit(name: str) -> dict[str, Any]:
        return {"subject": subject(name), "set": {"max": 1}}

    with Kill(world, "hub:written"):
        assert send().status >= 500
    found = [item["object"] for item in world.limits.gpu("GET", "limits?size=100").json["items"]]
    assert 0 < len(found) < 20
    assert send().status == 200
    until(lambda: world.limits.gpu("GET", "limits").json["total"] == 20, SECONDS, "all limits")
    for item in world.limits.gpu("GET", "limits?size=100").json["items"]:
        assert stored(world, item["object"]) == [(None, "1")]


def test_change_while_the_api_server_is_killed_is_refused_or_written(world: World) -> None:
    """The answer says which; the same request again ends in what was wanted. Each write is in the log once."""
    made = create(world, "eve", 1)
    name, tag = made.json["object"], made.headers["ETag"]
    world.until_known(name)
    with world.plane.without("apiserver"):
        refused = patch(world, name, 2, tag)
        assert (refused.status, refused.json["reason"]) == (503, "Unavailable")
    assert stored(world, name) == [(None, "1")]
    assert patch(world, name, 2, tag).status == 200
    assert stored(world, name) == [(None, "1"), ("1", "2")]
    lines = [line for line in world.service.audit() if line["object"] == name]
    assert [maximum(line["to"]) for line in lines] == ["1", "2"]


@pytest.fixture(scope="module")
def new_hub(running: World) -> Iterator[list[subprocess.Popen[bytes]]]:
    """Return a list for hubs that a test starts; they are stopped after all tests of the file."""
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for process in started:
        process.terminate()
        process.wait(SECONDS)


def test_hub_that_is_killed_during_a_change_lets_nothing_be_written(
    world: World, new_hub: list[subprocess.Popen[bytes]]
) -> None:
    """It dies before it has said whose token this is. Once it runs again, the same request is served."""
    made = create(world, "eve", 1)
    name, tag = made.json["object"], made.headers["ETag"]
    world.until_known(name)
    pid = int((world.folder / "hub.pid").read_text())
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(patch, world, name, 2, tag)
        time.sleep(0.3)
        assert not asking.done()
        os.kill(pid, signal.SIGKILL)
        refused = asking.result()
    assert refused.status == 503
    assert "nobody can be identified now" in refused.json["message"]
    assert stored(world, name) == [(None, "1")]
    words = [os.environ.get(hub.PYTHON) or sys.executable, "-m", "jupyterhub", "--config", "jupyterhub_config.py"]
    with (world.folder / "hub.log").open("ab") as log:
        new_hub.append(subprocess.Popen(words, cwd=world.folder, stdout=log, stderr=log))
    until(lambda: patch(world, name, 2, tag).status == 200, SECONDS, "the hub to be back")
    assert stored(world, name) == [(None, "1"), ("1", "2")]
