"""The page of GPU limits in a real browser, on a real hub: `labextension/ui-tests/hub/`."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.model.limits.owner import object_name
from tests.cluster.testbed import until
from tests.hub import PASSWORD, SECONDS

from . import language_pack
from .browser import Program
from .world import HUB, ROOT, World

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

UI_TESTS = ROOT / "labextension" / "ui-tests"
ACCOUNTS = "/apis/jupyter-gpu.io/v1alpha1/gpuaccounts"
NODES, PODS = "/api/v1/nodes", "/api/v1/namespaces/default/pods"
EVIL = "<img src=x onerror=document.title=1>"
LANGUAGE = "language.spec.ts"
MACHINE = "machine.spec.ts"
"""The page without a cluster, which `tests/hub_service/machine/test_two_users.py` runs."""
FILES = sorted(path.name for path in (UI_TESTS / "hub").glob("*.spec.ts") if path.name not in (LANGUAGE, MACHINE))
WORDS = {"Guaranteed": "Zugesichert"}
"""Words of a pack; our own catalogue has the others."""


@pytest.fixture
def cluster(world: World) -> Iterator[World]:
    """Return the world with four GPUs, of which ann's pod has two, and limits of all kinds."""
    gpus = [{"uuid": f"g{i}", "index": i, "model": "A100", "memory": 2**30, "healthy": True} for i in range(4)]
    notes = {"jupyter-gpu.io/inventory": json.dumps(gpus)}
    world.kube("POST", NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1", "annotations": notes}})
    shares = [{"uuid": f"g{i}", "milli": 1000} for i in range(2)]
    notes = {
        "hub.jupyter.org/username": "ann",
        "jupyter-gpu.io/hub": HUB,
        "jupyter-gpu.io/requested": json.dumps({"generation": 1, "milli": 2000}),
        "jupyter-gpu.io/allocated": json.dumps({"observedGeneration": 1, "shares": shares}),
    }
    slot = {"limits": {"jupyter-gpu.io/slot": "1"}}
    spec = {"schedulerName": "nobody", "containers": [{"name": "c", "image": "none", "resources": slot}]}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "one", "annotations": notes}, "spec": spec}
    world.kube("POST", PODS, pod)
    owner = {"kind": "User", "name": "ann", "hub": HUB}
    metadata = {"name": object_name("User", "ann", HUB)}
    account = {"apiVersion": "jupyter-gpu.io/v1alpha1", "kind": "GpuAccount", "metadata": metadata}
    world.kube("POST", ACCOUNTS, {**account, "spec": {"owner": owner}})
    status = {"max": "3", "used": "2", "source": {"kind": "User"}, "hours": {"2026-05-04": "12.5"}}
    patch = ["--subresource=status", "--type=merge", "-p", json.dumps({"status": status})]
    world.plane.kubectl("patch", "gpuaccount", metadata["name"], *patch)
    helm = {"labels": {"app.kubernetes.io/managed-by": "Helm"}}
    world.put_limit("helms", metadata=helm, subject={"kind": "Default"}, max=1)
    for kind, name, most in (("User", "ann", 3), ("Group", "ml", 2), ("User", EVIL, 1)):
        body = {"subject": {"kind": kind, "name": name, "hub": HUB}, "set": {"max": most}}
        assert world.limits.gpu("POST", "limits", body).status == 201
    until(lambda: world.limits.gpu("GET", "cluster").json["owned"] == 2000, SECONDS)
    until(lambda: world.token("bob").gpu("GET", "me").json["limit"]["value"] == "2", SECONDS)
    try:
        yield world
    finally:
        world.kube("DELETE", f"{PODS}/one?gracePeriodSeconds=0")
        world.kube("DELETE", f"{NODES}/n1")
        world.kube("DELETE", f"{ACCOUNTS}/{metadata['name']}")


@pytest.mark.parametrize("file", FILES)
def test_page(cluster: World, file: str, tmp_path: Path) -> None:
    """Each file of browser tests passes."""
    run(cluster, file, tmp_path)


def test_page_in_the_language_of_the_browser(cluster: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An installed language pack gives the words; what it does not have is in our own catalogue."""
    language_pack.install(tmp_path / "packs", "de_DE", WORDS)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "packs"))
    cluster.service.restart()
    run(cluster, LANGUAGE, tmp_path / "results")  # of which Playwright removes all else


def run(cluster: World, file: str, folder: Path) -> None:
    """Run a file of browser tests."""
    try:
        run_file(file, folder, cluster.limits, HUB)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{cluster.service.log.read_text()[-2000:]}") from error


def run_file(file: str, folder: Path, program: Program, name: str) -> None:
    """Run a file of browser tests; ``program`` may change limits of the hub of that ``name``."""
    names = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), "")
    assert browser, "There is no browser: scripts/test installs one."
    more = {
        "CHROMIUM": browser,
        "HUB_ADDRESS": program.hub,
        "HUB_NAME": name,
        "HUB_PASSWORD": PASSWORD,
        "HUB_RESULTS": str(folder),
        "HUB_TOKEN": program.token,
    }
    tool = UI_TESTS / "node_modules" / ".bin" / "playwright"
    words = [str(tool), "test", "--config=playwright.hub.config.ts", "--reporter=list", file]
    done = subprocess.run(
        words, cwd=UI_TESTS, env={**os.environ, **more}, capture_output=True, text=True, timeout=540, check=False
    )
    print(done.stdout)
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr}"
