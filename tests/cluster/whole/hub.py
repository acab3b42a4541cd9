"""A real JupyterHub with KubeSpawner on this machine, configured by the example, and a person's session with it."""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests import hub
from tests.cluster.testbed import Cluster, ports
from tests.deploy import product as chart

EXAMPLES = chart.ROOT / "deploy" / "examples"
ACCOUNT = "hub"
SERVICE = "jupyter-gpu-hub"
"""Deployment and Service of the page of GPU limits."""
TOKEN = "gpu-token"
"""The Secret with the token that the hub and its service share."""
PROXY = "proxy-public"
"""The Service through which pods reach the hub's proxy, as Zero to JupyterHub calls it."""
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


@dataclass(frozen=True)
class ServicePlan:
    """The part of a hub with the service of GPU limits that the chart has to know before there is a hub."""

    cluster: Cluster
    namespace: str
    """Namespace of the users' pods, and so the hub's name."""
    port: int
    """Port of the hub on the cluster's network."""
    token: str
    """Token of the service."""

    @property
    def values(self) -> dict[str, Any]:
        """Return the values of the chart for the service."""
        api = f"http://{self.cluster.network.service}:{self.port}/hub/api"
        return {"enabled": True, "name": self.namespace, "apiUrl": api, "tokenSecret": {"name": TOKEN}}

    def config(self) -> str:
        """Return configuration of the hub with the service, which the chart has installed."""
        words = ("get", "service", SERVICE, "--namespace", chart.NAMESPACE, "--output=jsonpath={.spec.clusterIP}")
        return hub.limits_service(f"http://{self.cluster.kubectl(*words)}:8888", self.token)


def plan(cluster: Cluster, namespace: str) -> ServicePlan:
    """Choose port and token, and write the Secret, which the chart expects."""
    made = ServicePlan(cluster, namespace, ports.free(1, cluster.network.service)[0], secrets.token_hex(16))
    secret = {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": TOKEN, "namespace": chart.NAMESPACE},
        "stringData": {"token": made.token},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(secret))
    return made


@contextmanager
def started(
    cluster: Cluster,
    namespace: str,
    folder: Path,
    image: str,
    config: str = "",
    *,
    port: int | None = None,
    public: tuple[str, int] | None = None,
    environment: Mapping[str, str] | None = None,
) -> Iterator[hub.Hub]:
    """The hub with its proxy, until the end of the block.

    Servers are pods of ``image`` in ``namespace``, where the service account ``notebook`` must be if they have tokens
    of the cluster. ``environment`` of servers comes before the example, ``config`` after it. ``port``: at which pods
    find the hub, on the cluster's network; ``public``: where all find its proxy, in place of this machine alone.
    """
    before = f"{BEFORE}c.KubeSpawner.environment = {dict(environment or {})!r}\n"
    own = OWN.format(namespace=namespace, image=image)
    account = {"KUBECONFIG": str(_kubeconfig(cluster, namespace, folder))}
    text = before + (EXAMPLES / "jupyterhub_config.py").read_text() + own + config
    host = cluster.network.service
    with hub.started(folder, text, host=host, port=port, public=public, more=account) as made:
        yield made


@contextmanager
def running(
    cluster: Cluster, namespace: str, folder: Path, image: str, config: str = "", *, port: int | None = None
) -> Iterator[str]:
    """The hub as `started` makes it; where people find it."""
    with started(cluster, namespace, folder, image, config, port=port) as made:
        yield made.address


@contextmanager
def started_without_tokens(planned: ServicePlan, folder: Path, image: str, config: str = "") -> Iterator[hub.Hub]:
    """The hub whose servers have no token of the cluster, as the other example configures it.

    Pods know its proxy by the name of the example.
    """
    cluster = planned.cluster
    values = yaml.safe_load((EXAMPLES / "z2jh-without-token.yaml").read_text())["singleuser"]
    assert values["serviceAccountName"] is None
    public = (cluster.network.service, ports.free(1, cluster.network.service)[0])
    alias = {"ip": _proxy(planned, *public), "hostnames": [PROXY]}  # the cluster has no DNS
    own = f"c.KubeSpawner.extra_pod_config = {{'hostAliases': [{alias!r}]}}\n{planned.config()}"
    with started(
        cluster,
        planned.namespace,
        folder,
        image,
        own + config,
        port=planned.port,
        public=public,
        environment=values["extraEnv"],
    ) as made:
        yield made


def profiles() -> list[dict[str, Any]]:
    """Return the profiles of the example, from which people choose when they start a server."""
    found: list[dict[str, Any]] = yaml.safe_load((EXAMPLES / "z2jh-values.yaml").read_text())["singleuser"][
        "profileList"
    ]
    return found


@contextmanager
def rights_everywhere(cluster: Cluster, namespace: str) -> Iterator[None]:
    """The hub's account has its rights in all namespaces, and may make them, as a namespace for each user needs."""
    name = f"jupyter-gpu-test-{ACCOUNT}"
    about = {"apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": name}}
    rules = [*RIGHTS, {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create"]}]
    binding = {
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": namespace}],
    }
    items = [{**about, "kind": "ClusterRole", "rules": rules}, {**about, "kind": "ClusterRoleBinding", **binding}]
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    try:
        yield
    finally:
        cluster.kubectl("delete", f"clusterrolebinding/{name}", f"clusterrole/{name}")


def _proxy(planned: ServicePlan, host: str, port: int) -> str:
    """Make the Service in front of the hub's proxy, which runs outside the cluster; return its address."""
    about = {"name": PROXY, "namespace": planned.namespace}
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": about,
        "spec": {"ports": [{"name": "http", "port": 80, "targetPort": port}]},
    }
    behind = {
        "apiVersion": "discovery.k8s.io/v1",
        "kind": "EndpointSlice",
        "metadata": {**about, "labels": {"kubernetes.io/service-name": PROXY}},
        "addressType": "IPv4",
        "endpoints": [{"addresses": [host], "conditions": {"ready": True}}],
        "ports": [{"name": "http", "port": port}],
    }
    objects = {"apiVersion": "v1", "kind": "List", "items": [service, behind]}
    planned.cluster.kubectl("apply", "-f", "-", stdin=json.dumps(objects))
    words = ("get", "service", PROXY, "--namespace", planned.namespace, "--output=jsonpath={.spec.clusterIP}")
    return planned.cluster.kubectl(*words).strip()


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
