"""All GPUs of a machine, as its servers report them: real processes of several users, one state directory."""

import json
import os
import pwd
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.backends.local.processes.identity import boot, namespace
from jupyter_gpu.backends.local.records import servers
from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu_node.processes.rules.process_id import ProcessId

from .stage import Stage, wait_for
from .test_faults import NOBODY, OTHER

pytestmark = pytest.mark.root


def who(machine: dict[str, Any], index: int) -> list[tuple[str, int, bool]]:
    """User, milli and whether it is given back, of each part of a GPU."""
    parts = machine["gpus"][index]["parts"]
    return [
        ("" if "server" not in part else machine["servers"][part["server"]]["user"], part["milli"], "draining" in part)
        for part in parts
    ]


def test_machine_lists_owners_and_waiting_servers(stage: Stage) -> None:
    """Three users see the same GPUs; others by their user's name, without a folder; waiting ones with their place."""
    root = stage.server()
    nobody, other = stage.actor(), stage.actor()
    for actor, user in ((nobody, NOBODY), (other, OTHER)):
        actor.ask("become", user=user)
        stage.server(actor)
    root.ask("request", milli=1500)
    nobody.ask("request", milli=1000)
    other.ask("request", milli=2000)
    machine = root.ask("machine", shown="everybody")
    name = pwd.getpwuid(NOBODY).pw_name
    holders = sorted(one for index in range(3) for one in who(machine, index))
    assert holders == sorted([("root", 1000, False), ("root", 500, False), (name, 1000, False)])
    assert machine["totals"] == {"gpus": 3, "free": 500, "used": 2500, "waiting": 1}
    mine, *others = machine["servers"]
    assert (mine["user"], mine["here"], mine["has"]) == ("root", True, 1500)
    assert mine["folder"]
    waiting = next(one for one in others if "owed" in one)
    assert waiting == {"user": _name(OTHER), "has": 0, "owed": 2000, "position": 1}
    assert all("folder" not in one and "port" not in one for one in others)
    assert [gpu["load"]["memory"] for gpu in machine["gpus"]] == [0, 0, 0]

    seen = nobody.ask("machine", shown="everybody")
    assert (seen["servers"][0]["user"], seen["servers"][0]["here"]) == (name, True)
    assert seen["totals"] == machine["totals"]
    assert all("folder" not in one for one in seen["servers"][1:])


def test_other_users_are_summed_up(stage: Stage) -> None:
    """A second server of the same user with its folder; all others in sum and without a name."""
    first, second, other = stage.server(), stage.server(), stage.actor()
    other.ask("become", user=NOBODY)
    stage.server(other)
    second.ask("request", milli=1000)
    other.ask("request", milli=1000)
    machine = first.ask("machine", shown="own")
    assert [(one["user"], "here" in one) for one in machine["servers"]] == [("root", True), ("root", False)]
    assert all(one["folder"] == os.getcwd() for one in machine["servers"])  # noqa: PTH109 - as it is written in /proc
    assert sorted(one for index in range(3) for one in who(machine, index)) == [
        ("", 1000, False),
        ("root", 1000, False),
    ]
    assert _name(NOBODY) not in json.dumps(machine)


def test_ended_server_is_listed_while_its_program_has_the_gpu(stage: Stage) -> None:
    """A server that was killed is listed as ended as long as a program of it has the GPU; then the GPU is free."""
    server, witness = stage.server(), stage.server()
    (gpu,) = server.ask("request", milli=1000)["gpus"]
    kernel = stage.kernel(server)
    assert kernel.ask("open", path=gpu["path"]) == ""
    server.kill()
    machine = wait_for(lambda: _ended(witness.ask("machine", shown="everybody")), "its end to be seen")
    assert who(machine, gpu["index"]) == [("root", 1000, True)]
    assert "folder" not in machine["servers"][1]
    kernel.kill()
    witness.ask("request", milli=3000)
    witness.ask("until", phase="Ready")
    assert len(witness.ask("machine", shown="everybody")["servers"]) == 1


def _ended(machine: dict[str, Any]) -> dict[str, Any] | None:
    return machine if any("ended" in one for one in machine["servers"]) else None


def test_machine_view_changes_nothing(stage: Stage) -> None:
    """To look on is no reason to write, to decide, or to notify any server."""
    server, other = stage.server(), stage.server()
    other.ask("request", milli=1000)
    before = {path.name: path.stat().st_mtime_ns for path in (stage.state / "pods").iterdir()}
    version = server.ask("view")["version"]
    for _ in range(5):
        server.ask("machine", shown="everybody")
    assert {path.name: path.stat().st_mtime_ns for path in (stage.state / "pods").iterdir()} == before
    assert server.ask("view")["version"] == version


def test_folder_is_read_from_jupyters_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the port; in the home directory it is short. Another user's file, a link or garbage is not read."""
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("HOME", "/home/ann")
    record = Record("0" * 32, ProcessId(os.getpid(), 1), boot(), namespace())
    note = tmp_path / f"jpserver-{os.getpid()}.json"

    def told() -> tuple[str, int | None]:
        (claim,) = servers.claims(record, ())
        return claim.folder, claim.port

    here = (os.getcwd(), None)  # noqa: PTH109
    assert told() == here
    note.write_text(json.dumps({"root_dir": "/home/ann/work", "url": "http://localhost:8889/"}))
    assert told() == ("~/work", 8889)
    for odd in ("http://[::1", "http://localhost:http/", 7, None):
        note.write_text(json.dumps({"root_dir": "/home/anna", "url": odd}))
        assert told() == ("/home/anna", None)
    for text in ("{", "[]", json.dumps({"root_dir": 7}), " " * 100_000):
        note.write_text(text)
        assert told() == here
    note.write_text(json.dumps({"root_dir": "/home/ann", "url": ""}))
    assert told() == ("~", None)
    os.chown(note, NOBODY, NOBODY)
    assert told() == here
    note.unlink()
    note.symlink_to("/etc/passwd")
    assert told() == here


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:
        return f"user {user}"
