"""A real JupyterHub with KubeSpawner on this machine, configured by the example, and a person's session with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import hub
from tests.cluster.whole.world import World

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy" / "examples" / "jupyterhub_config.py"
ACCOUNT = "hub"
VERBS = ["get", "list", "watch", "create", "patch", "delete"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims", "secrets", "services"], "verbs": VERBS},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch"]},
]
"""Rights that KubeSpawner needs in the namespace of the users' pods."""
EAGER = "eager"
"""This user's server starts with a GPU."""
BEFORE = """
def get_config(key, default=None):  # with this name Zero to JupyterHub reads its values
    return default

c.KubeSpawner.volumes = {"home": {"name": "home", "emptyDir": {}}}
c.KubeSpawner.volume_mounts = [{"name": "home", "mountPath": "/home/jovyan"}]
"""
"""A hub's own configuration, with its users' homes; the example comes after it, as in Zero to JupyterHub."""
OWN = """
c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
c.JupyterHub.hub_connect_url = c.JupyterHub.hub_bind_url
c.KubeSpawner.namespace = {namespace!r}
c.KubeSpawner.image = {image!r}
c.KubeSpawner.node_selector = {{"kubernetes.io/hostname": {node!r}}}
c.KubeSpawner.delete_grace_period = 1

def _eager(spawner):
    if spawner.user.name == {eager!r}:
        spawner.extra_annotations = {{"jupyter-gpu.io/requested": "1"}}

c.Spawner.pre_spawn_hook = _eager
"""
"""Configuration that differs on this machine from a hub in the cluster."""


@contextmanager
def running(world: World, folder: Path, image: str, node: str) -> Iterator[str]:
    """The hub with its proxy, until the end of the block; where people find it."""
    own = OWN.format(namespace=world.namespace, image=image, node=node, eager=EAGER)
    host, account = world.cluster.network.service, {"KUBECONFIG": str(_kubeconfig(world, folder))}
    with hub.running(folder, BEFORE + EXAMPLE.read_text() + own, host=host, more=account) as address:
        yield address


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
