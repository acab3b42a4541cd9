"""``jupyter gpu limits``, over the service and over the API server."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from datetime import date
from pathlib import Path

import pytest

from jupyter_gpu.cli import main
from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.changes import CHANGES
from jupyter_gpu.model.limits.owner import Owner, object_name
from tests.cluster.testbed import until
from tests.commands.limits_shell import LimitsShell
from tests.hub import SECONDS

from .world import HUB, LIMITS, World

pytestmark = pytest.mark.cluster

NAME = object_name("User", "ann", HUB)
ACCOUNTS = LIMITS.replace("gpulimits", "gpuaccounts")


@pytest.fixture(params=["service", "kubernetes"])
def way(request: pytest.FixtureRequest, world: World, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the options for one of the two ways."""
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", world.token("root").token)
    monkeypatch.setenv("KUBECONFIG", str(world.plane.kubeconfig))
    return ["--hub", HUB, *(["--service", f"{world.address}/services/gpu"] if request.param == "service" else [])]


@pytest.fixture
def shell(way: list[str], capsys: pytest.CaptureFixture[str]) -> LimitsShell:
    """Return the command."""
    return LimitsShell(capsys, *way)


def test_limit_is_set_shown_explained_and_removed(world: World, shell: LimitsShell) -> None:
    """A field that is not named stays; the change is recorded under the own name."""
    assert shell("set", "user:ann", "max=2", "weight=3") == "user:ann: created.\n"
    world.until_known(NAME)
    assert shell("set", "user:ann", "max=1", "weight=inherit") == "user:ann: changed.\n"
    assert world.limit(NAME)["spec"] == {"subject": {"kind": "User", "name": "ann", "hub": HUB}, "max": "1"}
    by = json.loads(world.limit(NAME)["metadata"]["annotations"][CHANGES])[-1]["by"]
    assert by in ("root", "admin")
    until(lambda: shell.json("list")["limits"][0]["fields"] == {"max": "1"}, SECONDS)
    assert "user:ann" in shell("list")
    told = shell("explain", "ann")
    assert told.startswith("ann may have 1 GPU, set for user ann")
    assert f"  {NAME}: 1. This holds." in told
    assert shell.json("explain", "ann")["limit"]["value"] == "1"
    assert shell("remove", "user:ann") == "user:ann: removed.\n"
    until(lambda: shell.json("list")["limits"] == [], SECONDS)
    assert shell("remove", "user:ann") == "user:ann: unchanged.\n"


def test_file_is_exported_and_applied(
    world: World, shell: LimitsShell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A dry run writes nothing; the export of the result changes nothing."""
    file = tmp_path / "limits.csv"
    file.write_text(f"kind,name,hub,max\nUser,ann,{HUB},2\nUser,=cmd(),{HUB},1\n")
    assert shell("apply", str(file), "--dry-run").startswith("2 added, 0 changed, 0 removed, 0 unchanged.")
    assert world.kube("GET", LIMITS)["items"] == []
    assert shell("apply", str(file)).startswith("2 added")
    until(lambda: len(shell.json("list")["limits"]) == 2, SECONDS)
    for kind in ("csv", "json"):
        text = shell("export", "--format", kind)
        monkeypatch.setattr(sys, "stdin", io.StringIO(text))
        assert shell("apply", "-", "--format", kind, "--replace").startswith(
            "0 added, 0 changed, 0 removed, 2 unchanged."
        )
    file.write_text(f"kind,name,hub,max\nUser,ann,{HUB},tow\n")
    assert "1 refused" in shell("apply", str(file), status=1)
    assert "Line 2: " in shell.error


def test_mistakes_are_told(world: World, shell: LimitsShell, tmp_path: Path) -> None:
    """With the exit codes of the other commands."""
    shell("set", "ann", "max=2", status=2)
    assert "is no subject" in shell.error
    shell("set", "user:ann", "max=tow", status=2)
    assert "tow" in shell.error
    shell("set", "cap", "max=2", status=1)
    assert "cluster administrators" in shell.error
    shell("apply", str(tmp_path / "nothing.json"), status=1)
    assert "can't be read" in shell.error


def test_ways_that_lead_nowhere_are_told(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """No token, no service, no API server, a user without the right."""
    monkeypatch.delenv("JUPYTERHUB_API_TOKEN", raising=False)
    service = f"{world.address}/services/gpu"
    cases: list[tuple[list[str], str, int, str]] = [
        (["--service", service], "", 1, "JUPYTERHUB_API_TOKEN"),
        (["--service", "hub.example"], "x", 2, "begins with https"),
        (["--service", "http://127.0.0.1:9"], "x", 5, "does not answer"),
        (["--service", f"{world.address}/hub/nothing"], "x", 1, "answered 404"),
        (["--service", service], world.token("bob").token, 1, "look after GPU limits"),
        ([], "", 1, "kubeconfig"),
    ]
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    for words, token, status, said in cases:
        if token:
            monkeypatch.setenv("JUPYTERHUB_API_TOKEN", token)
        assert main(["limits", "list", *words]) == status, words
        assert said in capsys.readouterr().err
    monkeypatch.setenv("KUBECONFIG", str(world.plane.kubeconfig))
    assert main(["limits", "explain", "ann"]) == 2
    assert "--hub" in capsys.readouterr().err


def test_account_without_rights_is_told(
    world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API server's sentence names the right."""
    monkeypatch.setenv("KUBECONFIG", str(world.plane.kubeconfig_for("mallory")))
    assert main(["limits", "list"]) == 1
    assert "cannot list resource" in capsys.readouterr().err


def test_pages_are_joined(world: World, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """The list is whole, however many limits there are."""
    monkeypatch.setattr("jupyter_gpu.cli.limit_access.PAGE", 2)
    monkeypatch.setenv("JUPYTERHUB_API_TOKEN", world.limits.token)
    edits = [{"subject": {"kind": "User", "name": f"u{i}"}, "set": {"max": i}} for i in range(5)]
    world.limits.gpu("POST", "limits/bulk", {"edits": edits})
    until(lambda: world.limits.gpu("GET", "limits").json["total"] == 5, SECONDS)
    assert main(["limits", "list", "--json", "--service", f"{world.address}/services/gpu"]) == 0
    assert len(json.loads(capsys.readouterr().out)["limits"]) == 5


SHOW = """
import sys
from jupyter_gpu.cli import parser
parser.parser()
print(*sys.modules)
"""
WITHOUT = """
import sys
sys.modules["kubernetes"] = None
from jupyter_gpu.cli import main
sys.exit(main(["limits", "list"]))
"""


def test_other_commands_load_nothing_of_it() -> None:
    """The command line stays light."""
    done = subprocess.run([sys.executable, "-c", SHOW], capture_output=True, text=True, check=True, timeout=SECONDS)
    loaded = done.stdout.split()
    assert "jupyter_gpu.cli.limit_commands" in loaded
    assert not [name for name in loaded if name.startswith(("jupyter_gpu_hub", "jupyter_gpu.model.limits", "aiohttp"))]


def test_missing_client_is_told(world: World) -> None:
    """The extra is named, in place of a traceback, where a kubeconfig needs the client."""
    env = {**os.environ, "KUBECONFIG": str(world.plane.kubeconfig_for("mallory"))}
    words = [sys.executable, "-c", WITHOUT]
    done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=SECONDS, env=env)
    assert done.returncode == 1
    assert "extra 'kubernetes'" in done.stderr
    assert "Traceback" not in done.stderr


def test_use_of_a_month_is_shown(world: World, shell: LimitsShell) -> None:
    """Both ways tell the same, as lines, JSON and CSV; a month that is none is refused in a sentence."""
    owner = Owner("User", "ann", HUB)
    made = Account(owner, hours={date(2026, 10, 1): 3 * 3_600_000 // 2})
    body = {"apiVersion": "jupyter-gpu.io/v1alpha1", "kind": "GpuAccount", "metadata": {"name": made.object_name}}
    world.kube("POST", ACCOUNTS, {**body, "spec": made.spec()})
    patch = json.dumps({"status": made.status()})
    names = ("gpuaccounts.jupyter-gpu.io", made.object_name)
    world.plane.kubectl("patch", *names, "--subresource=status", "--type=merge", "-p", patch)
    try:
        until(lambda: shell.json("usage", "--month", "2026-10")["usage"], SECONDS)
        (row,) = shell.json("usage", "--month", "2026-10")["usage"]
        assert (row["name"], row["hub"], row["gpuHours"], row["complete"]) == ("ann", HUB, "1.5", True)
        assert "user:ann" in shell("usage", "--month", "2026-10")
        assert shell("usage", "--month", "2026-10", "--csv").splitlines()[1:] == [
            f'"2026-10","User","ann","{HUB}","1.5","1","true"'
        ]
        assert "No GPU was used in 2026-09" in shell("usage", "--month", "2026-09")
        assert shell.json("usage")["usage"] == []
        shell("usage", "--month", "10/2026", status=2)
        assert "write it as 2026-10" in shell.error
    finally:
        world.plane.kubectl("delete", *names)
