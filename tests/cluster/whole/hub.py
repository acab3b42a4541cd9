"""A real JupyterHub with KubeSpawner on this machine, configured by the example, and a person's session with it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests import hub
from tests.cluster.testbed import Cluster

ROOT = Path(__file__).parents[3]
EXAMPLE = ROOT / "deploy" / "examples" / "jupyterhub_config.py"
ACCOUNT = "hub"
VERBS = ["get", "list", "watch", "create", "patch", "delete"]
RIGHTS = [
    {"apiGroups": [""], "resources": ["pods", "persistentvolumeclaims", "secrets", "services"], "verbs": VERBS},
    {"apiGroups": [""], "resources": ["events"], "verbs": ["get", "list", "watch"]},
]
"""Rights that KubeSpawner needs in the namespace of the users' pods."""
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
c.KubeSpawner.delete_grace_period = 1
"""
"""Configuration that differs on this machine from a hub in the cluster."""


@contextmanager
def running(
    cluster: Cluster, namespace: str, folder: Path, image: str, config: str = "", *, port: int | None = None
) -> Iterator[str]:
    """The hub with its proxy, until the end of the block; where people find it.

    Servers are pods of ``image`` in ``namespace``, where the service account ``notebook`` must be. ``config`` comes
    after the example. ``port``: at which pods find the hub, on the cluster's network.
    """
    own = OWN.format(namespace=namespace, image=image)
    account = {"KUBECONFIG": str(_kubeconfig(cluster, namespace, folder))}
    text = BEFORE + EXAMPLE.read_text() + own + config
    with hub.running(folder, text, host=cluster.network.service, port=port, more=account) as address:
        yield address


def _kubeconfig(cluster: Cluster, namespace: str, folder: Path) -> Path:
    """The hub's own account, which has the rights that a hub needs and no others."""

    def kubectl(*words: str, stdin: str | None = None) -> str:
        return cluster.kubectl("--namespace", namespace, *words, stdin=stdin)

    kinds = ("serviceaccount", "role", "rolebinding")
    kubectl("delete", "--ignore-not-found", *(f"{kind}/{ACCOUNT}" for kind in kinds))  # of an earlier attempt
    kubectl("create", "serviceaccount", ACCOUNT)
    role = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": ACCOUNT, "namespace": namespace},
        "rules": RIGHTS,
    }
    kubectl("create", "-f", "-", stdin=json.dumps(role))
    kubectl("create", "rolebinding", ACCOUNT, f"--role={ACCOUNT}", f"--serviceaccount={namespace}:{ACCOUNT}")
    config = json.loads(cluster.kubeconfig.read_text())
    config["users"][0]["user"] = {"token": kubectl("create", "token", ACCOUNT, "--duration=12h").strip()}
    path = folder / "kubeconfig"
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))
    return path
