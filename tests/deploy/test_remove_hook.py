"""The chart's last hook and lost nodes, on a real API server whose nodes are only objects."""

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.admission.api import MERGE
from tests.admission.test_definitions import ACCOUNTS, DEFINITIONS, LIMITS, account, limit
from tests.admission.world import SYSTEM, World
from tests.cluster.testbed import control_plane, until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]
SECONDS = 6
"""The hook's patience here."""
PODS = f"/api/v1/namespaces/{SYSTEM}/pods"
COMPONENT = "app.kubernetes.io/component"
OURS = {"app.kubernetes.io/name": "jupyter-gpu", "app.kubernetes.io/instance": "jupyter-gpu"}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Put the chart's policies on an API server, and nothing else."""
    monkeypatch.setenv("WAIT_SECONDS", str(SECONDS))
    with control_plane() as plane:
        plane.namespace(SYSTEM)
        world = World(plane, tmp_path)
        world.apply_policies()
        yield world
        for identity in (world.admin, *world.identities.values()):
            identity.close()


def node(world: World, name: str, ready: bool) -> None:
    """Create a node with what the node plugin wrote there."""
    metadata = {"name": name, "labels": {"jupyter-gpu.io/gpu.count": "4", "kept": "yes"}}
    world.glass.need("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": metadata})
    conditions = [{"type": "Ready", "status": "True" if ready else "Unknown"}]
    status = {"metadata": {"annotations": {"jupyter-gpu.io/inventory": "[]"}}, "status": {"conditions": conditions}}
    world.glass.need("PATCH", f"/api/v1/nodes/{name}/status", status, MERGE)


def plugin(world: World, name: str, *, leaving: bool = True) -> None:
    """Create the node plugin's pod there, which only the node's kubelet could end."""
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": f"plugin-{name}", "labels": {**OURS, COMPONENT: "node"}},
        "spec": {"nodeName": name, "containers": [{"name": "node", "image": "none"}]},
    }
    world.admin.need("POST", PODS, body)
    if leaving:
        world.admin.need("DELETE", f"{PODS}/plugin-{name}")


def cleaners(world: World) -> list[dict[str, Any]]:
    """Return the pods that clean up nodes."""
    found: list[dict[str, Any]] = world.glass.need("GET", f"{PODS}?labelSelector={COMPONENT}%3Dcleaner")["items"]
    return found


@contextmanager
def kubelets(world: World, *names: str) -> Iterator[dict[str, float]]:
    """Act as the kubelets of these nodes: every cleaner there succeeds; return when each was seen."""
    seen: dict[str, float] = {}
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.1):
            said = json.loads(
                world.plane.kubectl("get", "pods", "-n", SYSTEM, "-l", f"{COMPONENT}=cleaner", "-o", "json")
            )
            for pod in said["items"]:
                name = pod["spec"]["nodeName"]
                if name in names and name not in seen:
                    seen[name] = time.monotonic()
                    words = (
                        "-n",
                        SYSTEM,
                        "--subresource=status",
                        "--type=merge",
                        "-p",
                        '{"status":{"phase":"Succeeded"}}',
                    )
                    world.plane.kubectl("patch", "pod", pod["metadata"]["name"], *words)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def test_lost_node_is_not_waited_for(world: World) -> None:
    """Its plugin's pod stays for ever: the others are cleaned, the policies go, and the node is named."""
    node(world, "here", ready=True)
    node(world, "lost", ready=False)
    plugin(world, "lost")
    with kubelets(world, "here") as seen:
        began = time.monotonic()
        said = world.run_hook("remove")
        took = time.monotonic() - began
    assert set(seen) == {"here"}
    assert took < SECONDS + 6
    assert "node here: cleaned" in said
    assert "node lost: not cleaned, as it is not ready" in said
    policies = world.glass.need("GET", "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies")["items"]
    assert policies == []
    for name in ("here", "lost"):
        metadata = world.glass.need("GET", f"/api/v1/nodes/{name}")["metadata"]
        assert "jupyter-gpu.io/inventory" not in metadata.get("annotations", {})
        assert metadata["labels"] == {"kept": "yes"}
    assert not [pod for pod in cleaners(world) if "deletionTimestamp" not in pod["metadata"]]


def test_silent_nodes_are_waited_for_together(world: World) -> None:
    """Nodes that are ready for the API server but run no pod share one patience, instead of one each."""
    names = [f"silent-{number}" for number in range(5)]
    for name in names:
        node(world, name, ready=True)
    node(world, "here", ready=True)
    with kubelets(world, "here"):
        began = time.monotonic()
        said = world.run_hook("remove")
        took = time.monotonic() - began
    assert took < 2 * SECONDS + 6
    assert "node here: cleaned" in said
    assert all(f"node {name}: not cleaned within {SECONDS} s" in said for name in names)
    assert not [pod for pod in cleaners(world) if "deletionTimestamp" not in pod["metadata"]]


def test_plugin_that_does_not_end_keeps_only_its_node(world: World) -> None:
    """If its node is ready, the rest is done without it after the patience."""
    for name in ("here", "stuck"):
        node(world, name, ready=True)
    plugin(world, "stuck")
    with kubelets(world, "here", "stuck") as seen:
        said = world.run_hook("remove")
    assert set(seen) == {"here"}
    assert "node stuck: not cleaned, as the node plugin has not ended there" in said


def test_limits_outlive_an_uninstallation_unless_they_shall_not(world: World) -> None:
    """By default the next installation finds limits and accounts as before; if asked, they go with their kinds."""
    world.glass.need("POST", LIMITS, limit({"subject": {"kind": "User", "name": "ann"}, "max": 2}, "ann"))
    world.glass.need("POST", ACCOUNTS, account({"kind": "User", "name": "ann", "hub": "jhub"}, "ann"))
    world.run_hook("remove")
    before = [world.admin.need("GET", f"{path}/ann") for path in (LIMITS, ACCOUNTS)]
    world.apply_policies(limits={"keepOnUninstall": False})
    assert [world.admin.need("GET", f"{path}/ann") for path in (LIMITS, ACCOUNTS)] == before
    world.run_hook("remove")
    until(lambda: world.admin.need("GET", DEFINITIONS)["items"] == [], what="the end of the kinds")
    until(lambda: world.admin("GET", LIMITS).status == 404, what="the end of limits")
