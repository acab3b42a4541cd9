"""A real JupyterHub with KubeSpawner on this machine, configured by the example, and a person's session with it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster.testbed import until
from tests.cluster.testbed.ports import free
from tests.cluster.whole.world import SECONDS, World
from tests.hub import PASSWORD, PROXY, end_proxy, is_up

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy" / "examples" / "jupyterhub_config.py"
ACCOUNT = "hub"
VERBS = ["get", "list", "watch", "create", "patch", "delete"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims", "secrets", "services"], "verbs": VERBS},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch"]},
]
"""What KubeSpawner needs in the namespace of the users' pods."""
EAGER = "eager"
"""This user's server starts with a GPU."""
BEFORE = """
c = get_config()
c.KubeSpawner.volumes = {"home": {"name": "home", "emptyDir": {}}}
c.KubeSpawner.volume_mounts = [{"name": "home", "mountPath": "/home/jovyan"}]
"""
"""What a hub says about its users' homes; the example comes after it."""
OWN = """
import sys
c.JupyterHub.authenticator_class = "dummy"
c.DummyAuthenticator.password = {password!r}
c.Authenticator.allow_all = True
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.JupyterHub.bind_url = "http://127.0.0.1:{public}"
c.JupyterHub.hub_bind_url = "http://{host}:{hub}"
c.JupyterHub.hub_connect_url = "http://{host}:{hub}"
c.JupyterHub.db_url = "sqlite:///{folder}/hub.sqlite"
c.JupyterHub.cookie_secret_file = "{folder}/cookie_secret"
c.ConfigurableHTTPProxy.api_url = "http://127.0.0.1:{api}"
c.ConfigurableHTTPProxy.command = [{proxy!r}]
c.ConfigurableHTTPProxy.pid_file = "{folder}/proxy.pid"
c.KubeSpawner.namespace = {namespace!r}
c.KubeSpawner.image = {image!r}
c.KubeSpawner.node_selector = {{"kubernetes.io/hostname": {node!r}}}
c.KubeSpawner.delete_grace_period = 1
c.Spawner.start_timeout = c.Spawner.http_timeout = {seconds:.0f}

def _eager(spawner):
    if spawner.user.name == {eager!r}:
        spawner.extra_annotations = {{"jupyter-gpu.io/requested": "1"}}

c.Spawner.pre_spawn_hook = _eager
"""
"""What differs on this machine from a hub in the cluster."""


@contextmanager
def running(world: World, folder: Path, image: str, node: str) -> Iterator[str]:
    """The hub with its proxy, until the end of the block; where people find it."""
    assert PROXY.exists(), "configurable-http-proxy is not installed: scripts/test does it."
    host = world.cluster.network.service
    public, api = free(2)
    (hub,) = free(1, host)
    own = OWN.format(
        password=PASSWORD,
        public=public,
        host=host,
        hub=hub,
        api=api,
        folder=folder,
        proxy=str(PROXY),
        namespace=world.namespace,
        image=image,
        node=node,
        seconds=SECONDS,
        eager=EAGER,
    )
    config, log = folder / "jupyterhub_config.py", folder / "hub.log"
    config.write_text(BEFORE + EXAMPLE.read_text() + own)
    environment = {**os.environ, "KUBECONFIG": str(_kubeconfig(world, folder))}
    words = [sys.executable, "-m", "jupyterhub", "--config", str(config)]
    with (
        log.open("wb") as output,
        subprocess.Popen(words, cwd=folder, env=environment, stdout=output, stderr=output) as process,
    ):
        try:
            until(lambda: is_up(f"http://127.0.0.1:{public}"), SECONDS, "the hub")
            yield f"http://127.0.0.1:{public}"
        except Exception as error:
            raise AssertionError(f"{error}\n{log.read_text()[-6000:]}") from error
        finally:
            process.terminate()  # it ends its proxy and the users' servers
            try:
                process.wait(SECONDS)
            finally:
                process.kill()
                end_proxy(folder / "proxy.pid")


def _kubeconfig(world: World, folder: Path) -> Path:
    """The hub's own account, which has the rights that a hub needs and no others."""
    kinds = ("serviceaccount", "role", "rolebinding")
    world.kubectl("delete", "--ignore-not-found", *(f"{kind}/{ACCOUNT}" for kind in kinds))  # of an earlier attempt
    world.kubectl("create", "serviceaccount", ACCOUNT)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": ACCOUNT, "namespace": world.namespace},
        "rules": RIGHTS,
    }
    world.kubectl("create", "-f", "-", stdin=json.dumps(role))
    world.kubectl(
        "create", "rolebinding", ACCOUNT, f"--role={ACCOUNT}", f"--serviceaccount={world.namespace}:{ACCOUNT}"
    )
    config = json.loads(world.cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": world.kubectl("create", "token", ACCOUNT, "--duration=1h").strip()}
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path
