"""The hook in the real jupyterhub-idle-culler, with a real hub and a real API server."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml

from jupyter_gpu.model.annotations import ATTACHED, Attached, encode
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.limits.owner import USERNAME
from tests.cluster.testbed import until
from tests.hub import SECONDS

from .world import World

pytestmark = pytest.mark.cluster

CONFIG = """
import logging
logging.basicConfig(level="INFO")
from jupyter_gpu_hub.culling import CullArbiter
c.IdleCuller.cull_arbiter_hook = CullArbiter("default", known_seconds=0.5)
c.IdleCuller.timeout = 1
c.IdleCuller.cull_every = 1
"""
HAS = (GpuShare("g", 1000),)
SILENT, RESTS = encode(Attached(1, HAS, open=("g",))), encode(Attached(1, HAS))


@contextmanager
def culling(world: World, kubeconfig: str) -> Iterator[None]:
    """Run the culler until the end of the block."""
    file, log = world.folder / "culler.py", world.folder / "culler.log"
    file.write_text(CONFIG)
    token = world.script.token
    url = f"{world.address}/hub/api"
    environment = {**os.environ, "JUPYTERHUB_API_TOKEN": token, "JUPYTERHUB_API_URL": url, "KUBECONFIG": kubeconfig}
    words = [sys.executable, "-m", "jupyterhub_idle_culler", "--config", str(file)]
    with log.open("wb") as output, subprocess.Popen(words, env=environment, stdout=output, stderr=output) as process:
        try:
            yield
            assert process.poll() is None, log.read_text()
        finally:
            process.terminate()


def put_pod(world: World, user: str, attached: str) -> None:
    """Create the pod of a user's server."""
    notes = {USERNAME: user, ATTACHED: attached}
    spec = {"containers": [{"name": "c", "image": "busybox:1"}]}
    metadata = {"name": f"jupyter-{user}", "annotations": notes}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    world.kube("POST", "/api/v1/namespaces/default/pods", pod)


def runs(world: World, user: str) -> bool:
    """Tell whether a user's server runs."""
    servers = world.script.hub_api("GET", f"users/{user}?include_stopped_servers")["servers"]
    return bool(servers.get("", {}).get("ready"))


def test_silent_server_with_a_busy_gpu_is_not_stopped(world: World) -> None:
    """The culler stops the server whose GPU no process has open, and the other one once its cell has ended."""
    put_pod(world, "ann", SILENT)
    put_pod(world, "bob", RESTS)
    try:
        for user in ("ann", "bob"):
            world.server_token(user)
        with culling(world, str(world.plane.kubeconfig)):
            until(lambda: not runs(world, "bob"), SECONDS, "the server of bob to be stopped")
            assert runs(world, "ann")
            patch = json.dumps({"metadata": {"annotations": {ATTACHED: RESTS}}})
            world.plane.kubectl("patch", "pod", "jupyter-ann", "--type=merge", "-p", patch)
            until(lambda: not runs(world, "ann"), SECONDS, "the server of ann to be stopped")
    finally:
        world.plane.kubectl(
            "delete", "pod", "jupyter-ann", "jupyter-bob", "--grace-period=0", "--force", "--wait=false"
        )


def test_no_server_is_stopped_while_pods_cannot_be_read(world: World) -> None:
    """An API server that is away costs nobody their work."""
    world.server_token("ann")
    config = yaml.safe_load(world.plane.kubeconfig.read_text())
    config["clusters"][0]["cluster"]["server"] = "https://127.0.0.1:1"
    missing = world.folder / "none.yaml"
    missing.write_text(yaml.safe_dump(config))
    with culling(world, str(missing)):
        log = world.folder / "culler.log"
        until(lambda: "no inactive server is stopped for now" in log.read_text(), SECONDS, "the culler to say so")
        until(lambda: log.read_text().count("is not stopped") > 1, SECONDS, "a second round")
        assert runs(world, "ann")
    world.stop_server("ann")
