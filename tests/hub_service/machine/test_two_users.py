"""A hub that starts the service, and two users of one machine with real servers: by REST, and in a browser once."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model.limits.machine_file import HUB as NAME
from tests import hub
from tests.backends.local.limits.test_hub import ANN, BOB, GROUP, configured, ends_at, folder, person, users
from tests.cluster.testbed import until
from tests.cluster.testbed.ports import free
from tests.hub import SECONDS
from tests.hub_service.browser import Program
from tests.hub_service.test_page_in_browser import MACHINE, run_file

from .world import counting

pytestmark = [pytest.mark.root, pytest.mark.timeout(600)]

__all__ = ["folder", "users"]  # fixtures

CONFIG = """
c.Authenticator.admin_users = {{"root"}}
c.JupyterHub.services = [
    {{
        "name": "gpu",
        "url": "http://127.0.0.1:{port}",
        "command": [{python!r}, "-m", "jupyter_gpu_hub", "--settings", {settings!r}],
        "oauth_no_confirm": True,
    }},
    {{"name": "limits", "api_token": {token!r}}},
]
c.JupyterHub.custom_scopes = {{"custom:gpu:limits": {{"description": "Change limits of GPUs."}}}}
c.JupyterHub.load_roles = [
    {{"name": "user", "scopes": ["self", "access:services!service=gpu"]}},
    {{"name": "gpu-service", "services": ["gpu"], "scopes": ["list:users", "list:groups", "read:groups"]}},
    {{"name": "limits", "services": ["limits"], "scopes": ["custom:gpu:limits", "access:services!service=gpu"]}},
]
"""


@pytest.fixture(scope="module")
def program(folder: Path, users: None) -> Iterator[Program]:
    """Return a program that may change limits, with a hub whose servers share three GPUs."""
    (port,), token = free(1), secrets.token_hex(16)
    state, lasting, settings = folder / "state", folder / "lasting", folder / "settings.json"
    places = {"limits": str(state / "limits.json"), "state": str(state), "folder": str(lasting)}
    quick = {"mirrorSeconds": 0.5, "usersSeconds": 0.5, "rate": {"perSecond": 1000, "burst": 10000}}
    settings.write_text(json.dumps({"store": "machine", "machine": places, **quick}))
    config = configured(folder) + CONFIG.format(port=port, python=sys.executable, settings=str(settings), token=token)
    with counting(state, lasting), hub.running(folder, config) as address:
        found = Program(address, token)
        until(lambda: found.gpu("GET", "cluster").json["total"] == 3000, SECONDS, "the service")
        yield found


def put(program: Program, kind: str, name: str, **fields: object) -> None:
    """Set fields of a limit."""
    edit = {"subject": {"kind": kind, **({"name": name} if name else {})}, "set": fields}
    answer = program.gpu("POST", "limits/bulk", {"edits": [edit]})
    assert answer.json["counts"]["refused"] == 0, answer.text


def test_limits_of_the_page_hold_in_servers_of_two_users(program: Program, folder: Path, tmp_path: Path) -> None:
    """A limit moves the slider; use, waiting and notices are shown; the group is the machine's own."""
    put(program, "Default", "", max=1, grace="10m")
    put(program, "Group", GROUP, max=2)
    ann, bob = person(program.hub, ANN), person(program.hub, BOB)
    ends_at(ann, 1000)
    ends_at(bob, 2000)
    with pytest.raises(AssertionError, match=r"LimitExceeded.*Your limit is 1 GPU, the default for everyone, set by"):
        ann.ask("PUT", "request", {"gpus": 2})
    ann.ask("PUT", "request", {"gpus": 1})
    bob.ask("PUT", "request", {"gpus": 2})
    until(lambda: _row(program, BOB)["used"] == 2000, SECONDS, "the use")
    until(lambda: program.gpu("GET", "cluster").json["free"] == 0, SECONDS, "the bar")
    assert (_row(program, BOB)["limit"]["value"], _row(program, ANN)["used"]) == ("2", 1000)
    run_file(MACHINE, tmp_path, program, NAME)  # where root gives ann two GPUs
    ends_at(ann, 2000)
    ann.ask("PUT", "request", {"gpus": 2})
    until(lambda: _row(program, ANN)["waiting"] == 1000, SECONDS, "ann to wait")
    lowered = {"edits": [{"subject": {"kind": "Group", "name": GROUP}, "set": {"max": 1}}], "dryRun": True}
    told = program.gpu("POST", "limits/bulk", lowered).json["preview"]["sentence"]
    assert told == "1 user will lose 1 GPU in 10 minutes."
    put(program, "Group", GROUP, max=1)
    until(lambda: _row(program, BOB)["giveBackAt"], SECONDS, "the notice")
    put(program, "Default", "", grace="0s")
    until(lambda: _row(program, BOB)["used"] == 1000, SECONDS, "one to be given back")
    until(lambda: _row(program, ANN)["used"] == 2000, SECONDS, "the one who waits to get it")
    by = [item["by"] for item in program.gpu("GET", "audit?search=Group").json["items"]]
    assert by == ["service limits", "service limits"]


def _row(program: Program, name: str) -> dict[str, Any]:
    found: dict[str, Any] = program.gpu("GET", f"explain/{name}").json
    return found
