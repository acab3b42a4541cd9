"""The file with the limits, while people, the service and its end by force change it."""

from __future__ import annotations

import json
import os
import signal
from typing import Any

import pytest

from jupyter_gpu.common import faults
from jupyter_gpu.model.limits.owner import object_name
from tests.cluster.testbed import until
from tests.hub import SECONDS
from tests.hub_service.world import HUB

from .world import MachineWorld

pytestmark = pytest.mark.root

ANN = {"kind": "User", "name": "ann", "hub": HUB}
NAME, ML = object_name("User", "ann", HUB), object_name("Group", "ml", HUB)
PLAIN = {"subject": {"kind": "User", "name": "ann"}, "max": 2}


def most(world: MachineWorld, name: str = "ann") -> str:
    """Return the limit of a user, as the service knows it."""
    found: str = world.limits.gpu("GET", f"explain/{name}").json["limit"]["value"]
    return found


def edited(world: MachineWorld, fields: dict[str, Any], version: str) -> Any:
    """Change ann's limit, of that version."""
    return world.limits.gpu("PATCH", f"limits/{NAME}", {"set": fields}, {"If-Match": f'"{version}"'})


def test_limit_written_by_hand_is_seen_and_changed(world: MachineWorld) -> None:
    """The rest of the file stays; a user without a hub is the hub's; and only root may write the file."""
    world.put(PLAIN, {"subject": {"kind": "Default"}, "max": "tow"}, reclaim=True, _comment="ours")
    until(lambda: most(world) == "2", SECONDS)
    (row,) = world.limits.gpu("GET", "limits?search=ann").json["items"]
    assert (row["object"], row["subject"], row["changed"]) == (NAME, ANN, None)
    (default,) = world.limits.gpu("GET", "limits?search=&sort=kind&size=500").json["items"][-1:]
    assert "'max'" in default["problem"]
    assert edited(world, {"max": 3}, row["version"]).status == 200
    written = json.loads(world.file.read_text())
    assert (written["reclaim"], written["_comment"], written["limits"][1]["max"]) == (True, "ours", "tow")
    assert written["limits"][0]["spec"] == {"subject": {"kind": "User", "name": "ann"}, "max": "3"}
    assert (world.file.stat().st_uid, world.file.stat().st_mode & 0o777) == (0, 0o644)
    without_hub = {"edits": [{"subject": PLAIN["subject"], "set": {"max": 4}}]}
    assert world.limits.gpu("POST", "limits/bulk", without_hub).json["counts"]["changed"] == 1
    assert len(json.loads(world.file.read_text())["limits"]) == 2


def test_hand_edit_between_reading_and_writing_is_a_conflict(world: MachineWorld) -> None:
    """Both values are told, and nothing is written."""
    world.put(PLAIN)
    until(lambda: most(world) == "2", SECONDS)
    version = world.limits.gpu("GET", f"limits/{NAME}").json["version"]
    world.put({**PLAIN, "max": 5})
    refused = edited(world, {"max": 3}, version)
    assert (refused.status, refused.json["details"]["theirs"]) == (409, {"max": "5"})
    assert json.loads(world.file.read_text()) == {"limits": [{**PLAIN, "max": 5}]}


def test_damaged_file_keeps_what_was_read_and_is_not_touched(world: MachineWorld) -> None:
    """The page says so, writes are refused with the reason, and a correction is noticed."""
    world.put(PLAIN)
    until(lambda: most(world) == "2", SECONDS)
    for damage in ('{"limits": [', '{"limits": [{"max": 1}]}'):
        world.file.write_text(damage)
        until(lambda: "can't be used" in str(world.limits.gpu("GET", "limits").json["problem"]), SECONDS)
        assert most(world) == "2"
        refused = world.limits.gpu("POST", "limits", {"subject": {**ANN, "name": "bob"}, "set": {"max": 1}})
        assert (refused.status, refused.json["reason"]) == (503, "Unavailable")
        assert "The limits of this machine can't be used" in refused.json["message"]
        assert world.file.read_text() == damage
    world.put({**PLAIN, "max": 1})
    until(lambda: most(world) == "1", SECONDS)
    until(lambda: world.limits.gpu("GET", "limits").json["problem"] is None, SECONDS)


def test_file_of_another_user_does_not_count(world: MachineWorld) -> None:
    """Nor one that others may write: who could write it would give everyone GPUs."""
    world.put(PLAIN)
    until(lambda: most(world) == "2", SECONDS)
    world.put({**PLAIN, "max": 9})
    os.chown(world.file, 12345, -1)
    until(lambda: "must belong to" in str(world.limits.gpu("GET", "limits").json["problem"]), SECONDS)
    assert most(world) == "2"
    world.file.unlink()


@pytest.mark.parametrize("point", faults.LIMIT_POINTS)
def test_service_killed_while_it_writes_leaves_a_whole_file(world: MachineWorld, point: str) -> None:
    """The old limits or the new ones; the next one goes on."""
    world.put(PLAIN, reclaim=True)
    until(lambda: most(world) == "2", SECONDS)
    version = world.limits.gpu("GET", f"limits/{NAME}").json["version"]
    world.service.crash_at.write_text(point)
    assert edited(world, {"max": 3}, version).status >= 500
    assert world.service.process
    assert world.service.process.wait(SECONDS) == -signal.SIGKILL
    written = json.loads(world.file.read_text())
    assert written["reclaim"] is True
    after = "3" if point == "limits:replaced" else "2"
    world.service.start()
    until(lambda: most(world) == after, SECONDS)
    version = world.limits.gpu("GET", f"limits/{NAME}").json["version"]
    assert edited(world, {"max": 4}, version).status == 200
    until(lambda: most(world) == "4", SECONDS)


def test_members_of_the_hubs_group_are_written_for_servers(world: MachineWorld) -> None:
    """Those written by hand stay beside them, and so do those of a group that the hub does not know."""
    of_hub = {"spec": {"subject": {"kind": "Group", "name": "ml"}, "max": 4}, "status": {"members": ["zoe"]}}
    by_hand = {"spec": {"subject": {"kind": "Group", "name": "lab"}, "max": 3}, "status": {"members": ["rita"]}}
    world.put(of_hub, by_hand)
    until(lambda: world.limit(ML)["status"]["members"] == ["ann", "bob", "zoe"], SECONDS)
    until(lambda: (most(world, "bob"), most(world, "zoe"), most(world, "rita")) == ("4", "4", "3"), SECONDS)
    world.script.hub_api("DELETE", "groups/ml/users", {"users": ["bob"]})
    try:
        until(lambda: most(world, "bob") == "unlimited", SECONDS)
    finally:
        world.script.hub_api("POST", "groups/ml/users", {"users": ["bob"]})
    until(lambda: world.limit(ML)["status"]["members"] == ["ann", "bob", "zoe"], SECONDS)
    assert json.loads(world.file.read_text())["limits"][1] == by_hand


def test_words_are_those_of_a_machine(world: MachineWorld) -> None:
    """The cap, namespaces, requests of servers, other hubs: each with a sentence that fits."""
    root = world.token("root")
    cap = root.gpu("POST", "limits", {"subject": {"kind": "Cap"}, "set": {"max": 1}})
    assert (cap.status, "limits set --machine cap" in cap.json["message"]) == (403, True)
    space = root.gpu("POST", "limits", {"subject": {"kind": "Namespace", "name": "n"}, "set": {"max": 1}})
    assert (space.status, "One machine has no namespaces" in space.json["message"]) == (422, True)
    text = "kind,name,hub,max\r\nUser,ann,,1\r\nNamespace,n,,1\r\nUser,bob,elsewhere,1\r\n"
    dry = root.gpu("POST", "limits/import", {"format": "csv", "text": text, "dryRun": True}).json
    assert [line["outcome"] for line in dry["lines"]] == ["added", "refused", "refused"]
    assert "leave the hub out" in str(dry["lines"][2]["errors"])
    exported = root.gpu("POST", "limits", {"subject": ANN, "set": {"max": 1}})
    assert exported.status == 201
    until(lambda: "ann" in root.gpu("GET", "limits/export").text, SECONDS)
    assert json.loads(root.gpu("GET", "limits/export").text) == {
        "limits": [{"subject": {"kind": "User", "name": "ann"}, "max": "1"}]
    }
    assert root.gpu("GET", "me").json["machine"] is True
    refused = world.server_token("bob").gpu("GET", "server/pod")
    assert (refused.status, "takes and gives back its GPUs itself" in refused.json["message"]) == (403, True)
    assert root.gpu("GET", "cluster").json["total"] == 3000
