"""A cluster with the chart's policies and rights, some pods, and every identity that might write to them."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tests.admission.api import Api
from tests.cluster.testbed import ControlPlane, Existing, existing, until
from tests.deploy import chart

PREFIX = "jupyter-gpu.io/"
SYSTEM = "jupyter-gpu"
NOTEBOOKS = "jupyter-gpu-test-notebooks"
"""Namespace of the notebooks."""
FOREIGN = "jupyter-gpu-test-foreign"
"""A namespace that the chart does not name."""
HUB = "jupyter-gpu-test-hub"
SECOND = "second"
"""Name of a hub whose users are not those of the namespace of its pods."""
USERNAME = "hub.jupyter.org/username"
ONE, TWO = "jupyter-gpu-test-node1", "jupyter-gpu-test-node2"
"""Nodes that nothing runs on."""
PODS = f"/api/v1/namespaces/{NOTEBOOKS}/pods"
GRANTED = {
    "requested": '{"generation":1,"milli":1000}',
    "allocated": '{"observedGeneration":1,"shares":[{"uuid":"GPU-1","milli":1000}]}',
    "attached": '{"observedGeneration":1,"shares":[{"uuid":"GPU-1","milli":1000}]}',
}
VALUES: dict[str, Any] = {
    "notebooks": {"namespaces": [{"namespace": NOTEBOOKS, "serviceAccounts": ["default", "greedy"]}]},
    "hubs": [
        {"namespace": HUB, "serviceAccount": "hub", "notebookNamespaces": [NOTEBOOKS]},
        {"namespace": HUB, "serviceAccount": "second", "notebookNamespaces": [NOTEBOOKS], "name": SECOND},
    ],
    "policies": {"allowedHostPaths": ["/srv/data", "/srv/shared/*"]},
    "hub": {"enabled": True, "write": True, "name": NOTEBOOKS},
    "limits": {"askAtCreation": False},
    "workers": {"enabled": True, "namespaces": [NOTEBOOKS], "pod": {"environment": ["LANG", "TZ"]}},
}


def slot_pod(name: str, **more: Any) -> dict[str, Any]:
    """A pod that asks for a slot; `spec` and `container` are merged into it."""
    container = {"name": "main", "image": "none", "resources": {"limits": {PREFIX + "slot": "1"}}}
    container |= more.pop("container", {})
    return plain_pod(name, container=container, **more)


def plain_pod(name: str, **more: Any) -> dict[str, Any]:
    """A pod that does not ask for one."""
    container = {"name": "main", "image": "none", **more.get("container", {})}
    annotations = {PREFIX + key: value for key, value in more.get("annotations", {}).items()}
    metadata = {"name": name, "annotations": annotations, **more.get("metadata", {})}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"schedulerName": "nobody", "containers": [container], **more.get("spec", {})},
    }


def binding(pod: str, node: str, annotations: Mapping[str, str | None], uid: str = "") -> dict[str, Any]:
    """Return the binding of a pod to a node."""
    metadata: dict[str, Any] = {"name": pod, "annotations": {PREFIX + key: value for key, value in annotations.items()}}
    return {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": metadata | ({"uid": uid} if uid else {}),
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }


class World:
    """All of it; `identities` by name."""

    def __init__(self, plane: ControlPlane | Existing, folder: Path) -> None:
        self.plane = plane
        self.folder = folder
        self.keeps = ""
        """The chart's arguments for its last hook about limits and accounts."""
        self.admin = Api(plane.kubeconfig)
        self.glass = self._user("glass", "jupyter-gpu:break-glass", "system:masters")
        self.identities: dict[str, Api] = {"break-glass": self.glass, "masters": self._user("root", "system:masters")}

    def build(self) -> None:
        """Namespaces, policies by the chart's hook, rights, nodes, pods and identities."""
        for namespace in (SYSTEM, NOTEBOOKS, FOREIGN, HUB):
            self.plane.namespace(namespace)
            account = f"/api/v1/namespaces/{namespace}/serviceaccounts/default"
            until(lambda account=account: self.admin("GET", account).ok, what=account)  # type: ignore[misc]
        for namespace, account in (
            (NOTEBOOKS, "greedy"),
            (NOTEBOOKS, "colleague"),
            (NOTEBOOKS, "controller"),
            (NOTEBOOKS, "operator"),
            (HUB, "hub"),
            (HUB, "second"),
        ):
            body = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": account}}
            self.admin.need("POST", f"/api/v1/namespaces/{namespace}/serviceaccounts", body)
        self.apply_policies()
        rendered = chart.render(VALUES, namespace=SYSTEM)
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
        objects = [item for item in rendered if item["kind"] in kinds and not chart.is_hook(item)]
        self.apply([*objects, *_roles()])
        self._nodes_and_pods()
        self._people()
        self._accounts()
        self._may_edit()
        self._borrowers()

    def apply(self, objects: list[dict[str, Any]]) -> None:
        """Apply a manifest as an administrator."""
        self.plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))

    def apply_policies(self, **values: Any) -> str:
        """Runs the chart's own hook against this API server, with some values changed; what it says."""
        self.write_hook(**values)
        return self.run_hook("apply")

    def write_hook(self, **values: Any) -> None:
        """The hook's files, and its account with the rights that it has while it runs."""
        files = chart.hook_files({**VALUES, **values}, namespace=SYSTEM)
        hook = self.folder / "hook"
        shutil.rmtree(hook, ignore_errors=True)
        hook.mkdir()
        for name, text in files.items():
            (hook / name).write_text(text)
        rendered = [item for item in chart.render({**VALUES, **values}, namespace=SYSTEM) if chart.is_hook(item)]
        job = chart.find(rendered, "Job", "jupyter-gpu-hook-remove")["spec"]["template"]["spec"]
        said = {each["name"]: each.get("value") for each in job["containers"][0]["env"]}
        self.keeps = said["KEEP_DEFINITIONS"]
        kinds = ("ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding")
        self.apply([item for item in rendered if item["kind"] in kinds])

    def run_hook(self, what: str) -> str:
        """`apply` or `remove`, with the rights of the chart's hook account, to its end."""
        with self.start_hook(what) as hook:
            output, _ = hook.communicate(timeout=120)
        assert hook.returncode == 0, output
        return output

    def start_hook(self, what: str) -> "subprocess.Popen[str]":
        """Start the hook and return it, still running."""
        account = self.folder / "account"
        account.mkdir(exist_ok=True)
        (account / "token").write_text(self.token(SYSTEM, "jupyter-gpu-hook"))
        (account / "ca.crt").write_bytes(self.plane.ca)
        host, port = self.plane.endpoint
        environment = {
            "KUBERNETES_SERVICE_HOST": host,
            "KUBERNETES_SERVICE_PORT": str(port),
            "ACCOUNT": str(account),
            "POD_NAMESPACE": SYSTEM,
            "KEEP_DEFINITIONS": self.keeps,
        }
        return subprocess.Popen(
            [sys.executable, str(self.folder / "hook" / "hook.py"), what],
            env={**os.environ, **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def token(self, namespace: str, account: str, pod: dict[str, Any] | None = None, *, by: Api | None = None) -> str:
        """Return a real token, bound to the pod as the kubelet asks for it; made by an administrator by default."""
        spec: dict[str, Any] = {"audiences": []}
        if pod is not None:
            metadata = pod["metadata"]
            spec["boundObjectRef"] = {
                "kind": "Pod",
                "apiVersion": "v1",
                "name": metadata["name"],
                "uid": metadata["uid"],
            }
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        answer = (by or self.admin).need(
            "POST", path, {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        )
        return str(answer["status"]["token"])

    def place(self, pod: dict[str, Any], node: str, namespace: str = NOTEBOOKS) -> dict[str, Any]:
        """Creates the pod on a node; annotations as an administrator with the break-glass group."""
        pods = f"/api/v1/namespaces/{namespace}/pods"
        made = self.glass.need("POST", pods, pod)
        name = made["metadata"]["name"]
        if node:
            self.admin.need("POST", f"{pods}/{name}/binding", binding(name, node, {}))
        return self.admin.need("GET", f"{pods}/{name}")

    def kill(self, name: str) -> None:
        """Deletes a pod at once."""
        self.admin.need("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")

    def close(self) -> None:
        """Ends all connections."""
        for api in (self.admin, *self.identities.values()):
            api.close()

    def _user(self, name: str, *groups: str) -> Api:
        if isinstance(self.plane, ControlPlane):
            return Api(self.plane.kubeconfig_for(name, groups))
        member = [("Impersonate-Group", group) for group in groups]
        return Api(self.plane.kubeconfig, impersonate=[("Impersonate-User", name), *member])

    def _nodes_and_pods(self) -> None:
        for node in (ONE, TWO):
            annotations = {PREFIX + "inventory": "[]"}
            labels = {PREFIX + "gpu.count": "4", "kubernetes.io/hostname": node, **existing.OURS}
            metadata = {"name": node, "annotations": annotations, "labels": labels}
            body = {"metadata": metadata, "spec": {"unschedulable": True}}
            self.glass.need("POST", "/api/v1/nodes", {"apiVersion": "v1", "kind": "Node", **body})
        greedy = {"serviceAccountName": "greedy"}
        self.pods = {
            "lab": self.place(slot_pod("lab", annotations=GRANTED), ONE),
            "other": self.place(slot_pod("other", annotations=GRANTED), ONE),
            "far": self.place(slot_pod("far", annotations=GRANTED), TWO),
            "waiting": self.place(slot_pod("waiting", annotations={"requested": "1"}), ""),
            "blank": self.place(slot_pod("blank"), ONE),
            "greedy": self.place(slot_pod("greedy", annotations=GRANTED, spec=greedy), ONE),
            "plain": self.place(plain_pod("plain"), ONE),
            "mine": self.place(slot_pod("mine", metadata={"annotations": {USERNAME: "ann"}}), ONE),
            "theirs": self.place(
                slot_pod("theirs", metadata={"annotations": {USERNAME: "ann", f"{PREFIX}hub": SECOND}}), ONE
            ),
            "stranger": self.place(slot_pod("stranger", annotations=GRANTED), ONE, FOREIGN),
        }

    def _people(self) -> None:
        self.identities |= {
            "editor": self._user("alice"),
            "cluster-admin": self._user("carol"),
            "kubelet": self._user(f"system:node:{ONE}", "system:nodes"),
            "cluster's kube-scheduler": self._user("system:kube-scheduler"),
        }

    def _accounts(self) -> None:
        self.pods["again"] = self.place(slot_pod("again", annotations=GRANTED), ONE)
        system = {
            name: self.place(plain_pod(name, spec={"serviceAccountName": account}), node, SYSTEM)
            for name, account, node in (
                ("scheduler", "jupyter-gpu-scheduler", TWO),
                ("plugin1", "jupyter-gpu-node", ONE),
                ("plugin2", "jupyter-gpu-node", TWO),
                ("second", "jupyter-gpu-kube-scheduler", TWO),
            )
        }
        tokens = {
            "notebook": self.token(NOTEBOOKS, "default", self.pods["lab"]),
            "greedy notebook": self.token(NOTEBOOKS, "greedy", self.pods["greedy"]),
            "account of notebooks": self.token(NOTEBOOKS, "default"),
            "foreign notebook": self.token(FOREIGN, "default", self.pods["stranger"]),
            "hub": self.token(HUB, "hub"),
            "second hub": self.token(HUB, "second"),
            "hub's service": self.token(SYSTEM, "jupyter-gpu-hub"),
            "scheduler": self.token(SYSTEM, "jupyter-gpu-scheduler", system["scheduler"]),
            "plugin": self.token(SYSTEM, "jupyter-gpu-node", system["plugin1"]),
            "plugin of node2": self.token(SYSTEM, "jupyter-gpu-node", system["plugin2"]),
            "account of plugins": self.token(SYSTEM, "jupyter-gpu-node"),
            "our kube-scheduler": self.token(SYSTEM, "jupyter-gpu-kube-scheduler", system["second"]),
            "cluster's controller": self.token(NOTEBOOKS, "controller"),
            "hook": self.token(SYSTEM, "jupyter-gpu-hook"),
            "operator of everything": self.token(NOTEBOOKS, "operator"),
        }
        self.identities |= {name: Api(self.plane.kubeconfig, token) for name, token in tokens.items()}
        # As the API server sees the token of a pod that had this name before, for as long as it still accepts it.
        extra = _claims({"pod-name": "again", "pod-uid": "00000000-0000-4000-8000-000000000000", "node-name": ONE})
        account = ("Impersonate-User", f"system:serviceaccount:{NOTEBOOKS}:default")
        self.identities["notebook of a deleted pod"] = Api(self.plane.kubeconfig, impersonate=[account, *extra])

    def _may_edit(self) -> None:
        """A controller fills the role ``edit`` from others, some time after the API server began."""
        about = {"namespace": NOTEBOOKS, "verb": "patch", "resource": "pods"}
        spec = {"resourceAttributes": about}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SelfSubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
        self.identities["colleague"] = Api(self.plane.kubeconfig, self.token(NOTEBOOKS, "colleague"))
        for name in ("editor", "greedy notebook", "colleague"):
            api = self.identities[name]
            until(lambda api=api: api.need("POST", path, body)["status"]["allowed"], what=f"the rights of {name}")  # type: ignore[misc]

    def _borrowers(self) -> None:
        """Create users that may edit namespaces and act as service accounts of them."""
        token = self.token(NOTEBOOKS, "colleague")
        accounts = {"notebook": (NOTEBOOKS, "default"), "greedy notebook": (NOTEBOOKS, "greedy"), "hub": (HUB, "hub")}
        for name, (namespace, account) in accounts.items():
            user = ("Impersonate-User", f"system:serviceaccount:{namespace}:{account}")
            self.identities[f"colleague as {name}"] = Api(self.plane.kubeconfig, token, impersonate=[user])
        lab = self.pods["lab"]["metadata"]
        claims = _claims({"pod-name": lab["name"], "pod-uid": lab["uid"], "node-name": ONE})
        user = ("Impersonate-User", f"system:serviceaccount:{NOTEBOOKS}:default")
        self.identities["colleague with claims of the pod"] = Api(
            self.plane.kubeconfig, token, impersonate=[user, *claims]
        )
        own = self.token(NOTEBOOKS, "default", self.pods["lab"], by=self.identities["colleague"])
        self.identities["colleague with a token of the pod"] = Api(self.plane.kubeconfig, own)


def _claims(claims: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return what the API server knows of a token that is bound to a pod."""
    return [(f"Impersonate-Extra-authentication.kubernetes.io%2F{key}", value) for key, value in claims.items()]


def _roles() -> list[dict[str, Any]]:
    """Rights beside the chart's: editors, administrators, a hub that makes pods, a greedy notebook."""
    edit = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "edit"}
    spawn = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "spawn", "namespace": NOTEBOOKS},
        "rules": [
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "create", "patch", "delete"]}
        ],
    }
    everything = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "Role",
        "metadata": {"name": "everything-of-pods", "namespace": NOTEBOOKS},
        "rules": [
            {
                "apiGroups": [""],
                "resources": ["pods/status", "pods/binding", "bindings", "pods/ephemeralcontainers", "pods/resize"],
                "verbs": ["create", "patch", "update"],
            }
        ],
    }
    nodes = {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "jupyter-gpu-test-nodes", "labels": existing.OURS},
        "rules": [{"apiGroups": [""], "resources": ["nodes", "nodes/status"], "verbs": ["patch", "update", "create"]}],
    }
    greedy = {"kind": "ServiceAccount", "name": "greedy", "namespace": NOTEBOOKS}
    alice = {"kind": "User", "name": "alice", "apiGroup": "rbac.authorization.k8s.io"}
    carol = {"kind": "User", "name": "carol", "apiGroup": "rbac.authorization.k8s.io"}
    hub = {"kind": "ServiceAccount", "name": "hub", "namespace": HUB}
    second = {"kind": "ServiceAccount", "name": "second", "namespace": HUB}
    colleague = {"kind": "ServiceAccount", "name": "colleague", "namespace": NOTEBOOKS}
    controller = {"kind": "ServiceAccount", "name": "controller", "namespace": NOTEBOOKS}
    operator = {"kind": "ServiceAccount", "name": "operator", "namespace": NOTEBOOKS}

    def bound(
        name: str, role: dict[str, Any], *subjects: dict[str, str], cluster: bool = False, namespace: str = NOTEBOOKS
    ) -> dict[str, Any]:
        reference = {
            "apiGroup": "rbac.authorization.k8s.io",
            "kind": role["kind"],
            "name": role.get("name") or role["metadata"]["name"],
        }
        return {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding" if cluster else "RoleBinding",
            "metadata": {"name": name, "labels": existing.OURS} | ({} if cluster else {"namespace": namespace}),
            "roleRef": reference,
            "subjects": list(subjects),
        }

    return [
        spawn,
        everything,
        nodes,
        bound("editors", edit, alice, greedy, colleague),
        bound("editors", edit, colleague, namespace=HUB),
        bound("operators", {**edit, "name": "cluster-admin"}, operator),
        bound("everything", everything, alice, greedy, controller),
        bound("spawners", spawn, hub, second),
        bound("jupyter-gpu-test-nodes", nodes, alice, greedy, cluster=True),
        bound("jupyter-gpu-test-admins", {**edit, "name": "cluster-admin"}, carol, cluster=True),
    ]
