"""Rights of the worker controller that nobody else has: the chart's policy on a real API server.

The pod that its own template makes is accepted; with any field changed, taken away or added it is refused, except for
the few that are the notebook's.
"""

import copy
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml

from jupyter_gpu.common.settings_file import parse
from jupyter_gpu.model.annotations import SERVICE, encode
from jupyter_gpu.model.service import Service, WorkerPart
from jupyter_gpu_scheduler.workers.rules.records import Notebook, read_notebook
from jupyter_gpu_scheduler.workers.rules.template import worker_name, worker_pod
from jupyter_gpu_scheduler.workers.settings import WorkerSettings
from tests.admission.api import JSON_PATCH, MERGE, Answer, Api
from tests.admission.test_admission import some_plane
from tests.admission.world import FOREIGN, NOTEBOOKS, ONE, PODS, PREFIX, SYSTEM, TWO, VALUES, World, slot_pod
from tests.cluster.testbed import until
from tests.deploy import chart

pytestmark = [pytest.mark.cluster]
WORKER = PREFIX + "worker"
STATUS = PREFIX + "worker-status"
PART = WorkerPart("w1", TWO, 1000)
RICH: Mapping[str, Any] = {
    "container": {
        "env": [{"name": "TZ", "value": "UTC"}, {"name": "TOKEN", "value": "x"}],
        "imagePullPolicy": "IfNotPresent",
    },
    "spec": {
        "imagePullSecrets": [{"name": "registry"}],
        "tolerations": [{"key": "gpu", "operator": "Exists"}],
        "securityContext": {"runAsUser": 1000, "runAsGroup": 100, "fsGroup": 100},
        "hostUsers": False,
    },
}
"""A notebook that has a value in every field that its workers have from it."""
FREE = (
    "spec.containers.0.image",
    "spec.containers.0.imagePullPolicy",
    "spec.containers.0.terminationMessagePolicy",
    "spec.containers.0.env.1.value",
    "spec.imagePullSecrets",
    "spec.securityContext.runAsUser",
    "spec.securityContext.runAsGroup",
    "spec.securityContext.fsGroup",
    "spec.tolerations.2",
    "spec.hostUsers",
    "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms.0.matchFields.0.values.0",
)
"""Fields that are the notebook's, or say nothing about what a worker can do."""
HARMLESS = {
    ("spec.tolerations", "more"),  # the notebook may have any
    ("spec.containers.0.env.1", "none"),
    ("spec.containers.0.env", "more"),  # the same variable twice
    ("metadata.namespace", "none"),  # it is in the path
    ("metadata.ownerReferences.0.name", "another"),  # the uid says which pod it is
    ("metadata.ownerReferences", "more"),  # the same one twice
    # What the API server itself fills in, with the same value.
    ("apiVersion", "none"),
    ("kind", "none"),
    ("spec.containers.0.resources.requests.jupyter-gpu.io/slot", "none"),
    ("spec.restartPolicy", "none"),
    ("spec.terminationGracePeriodSeconds", "none"),
}
"""Changes that give nothing away."""
SECURITY = "spec.containers.0.securityContext"
ADDED: Mapping[str, Any] = {
    "metadata.generateName": "x-",
    "metadata.finalizers": ["example.org/never"],
    "metadata.labels.app": "hub",
    f"metadata.labels.{PREFIX}gpu": "1",
    "metadata.annotations.example.org/other": "1",
    f"metadata.annotations.{PREFIX}allocated": '{"observedGeneration":1,"shares":[]}',
    f"metadata.annotations.{PREFIX}worker-status": "{}",
    "metadata.annotations.hub.jupyter.org/username": "ann",
    "metadata.annotations.k8s.v1.cni.cncf.io/networks": "other",
    "metadata.ownerReferences.0.controller": True,
    "metadata.ownerReferences.0.blockOwnerDeletion": True,
    "spec.initContainers": [{"name": "first", "image": "none"}],
    "spec.nodeName": ONE,
    "spec.nodeSelector": {"a": "b"},
    "spec.serviceAccountName": "greedy",
    "spec.hostNetwork": True,
    "spec.hostPID": True,
    "spec.hostIPC": True,
    "spec.shareProcessNamespace": True,
    "spec.activeDeadlineSeconds": 5,
    "spec.dnsPolicy": "Default",
    "spec.dnsConfig": {"nameservers": ["192.0.2.1"]},
    "spec.hostname": "a",
    "spec.subdomain": "a",
    "spec.setHostnameAsFQDN": True,
    "spec.hostAliases": [{"ip": "192.0.2.1", "hostnames": ["a"]}],
    "spec.readinessGates": [{"conditionType": "a"}],
    "spec.topologySpreadConstraints": [
        {"maxSkew": 1, "topologyKey": "a", "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {}}
    ],
    "spec.schedulingGates": [{"name": "a"}],
    "spec.resourceClaims": [{"name": "a", "resourceClaimName": "a"}],
    "spec.resources": {"limits": {"cpu": "9"}},
    "spec.os": {"name": "linux"},
    "spec.priorityClassName": "system-node-critical",
    "spec.affinity.podAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a", "labelSelector": {}}]
    },
    "spec.affinity.podAntiAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "a", "labelSelector": {}}]
    },
    "spec.securityContext.supplementalGroups": [0],
    "spec.securityContext.sysctls": [{"name": "kernel.shm_rmid_forced", "value": "1"}],
    "spec.securityContext.seLinuxOptions": {"type": "spc_t"},
    "spec.securityContext.appArmorProfile": {"type": "Unconfined"},
    "spec.securityContext.windowsOptions": {"runAsUserName": "a"},
    "spec.containers.0.args": ["-c", "1"],
    "spec.containers.0.ports": [{"containerPort": 80, "hostPort": 80}],
    "spec.containers.0.envFrom": [{"secretRef": {"name": "a"}}],
    "spec.containers.0.lifecycle": {"postStart": {"exec": {"command": ["a"]}}},
    "spec.containers.0.livenessProbe": {"httpGet": {"host": "192.0.2.1", "port": 80}},
    "spec.containers.0.readinessProbe": {"exec": {"command": ["a"]}},
    "spec.containers.0.startupProbe": {"exec": {"command": ["a"]}},
    "spec.containers.0.restartPolicy": "Never",
    "spec.containers.0.stdin": True,
    "spec.containers.0.tty": True,
    "spec.containers.0.terminationMessagePath": "/a",
    "spec.containers.0.volumeDevices": [{"name": "home", "devicePath": "/dev/a"}],
    "spec.containers.0.volumeMounts.0.subPath": "a",
    "spec.containers.0.volumeMounts.0.subPathExpr": "a",
    "spec.containers.0.volumeMounts.0.readOnly": True,
    "spec.containers.0.volumeMounts.0.mountPropagation": "HostToContainer",
    "spec.containers.0.resources.limits.nvidia.com/gpu": "1",
    "spec.containers.0.resources.limits.hugepages-2Mi": "2Mi",
    "spec.containers.0.resources.claims": [{"name": "a"}],
    f"{SECURITY}.privileged": True,
    f"{SECURITY}.procMount": "Unmasked",
    f"{SECURITY}.runAsNonRoot": False,
    f"{SECURITY}.capabilities.add": ["NET_BIND_SERVICE"],
    f"{SECURITY}.seccompProfile": {"type": "Unconfined"},
    f"{SECURITY}.appArmorProfile": {"type": "Unconfined"},
    f"{SECURITY}.seLinuxOptions": {"user": "a"},
    f"{SECURITY}.windowsOptions": {"runAsUserName": "a"},
    "spec.volumes.0.emptyDir.medium": "Memory",
    "spec.volumes.1.emptyDir.medium": "Memory",
    "spec.containers.0.volumeMounts.2.subPath": "a",
}
"""Fields that the template does not have, each with a value that would give something away."""
REPLACED: Mapping[str, Any] = {
    "spec.volumes.0": {"name": "home", "hostPath": {"path": "/"}},
    "spec.volumes.1": {"name": "tmp", "secret": {"secretName": "a"}},
    "spec.containers.0.env.1": {"name": "TZ", "valueFrom": {"secretKeyRef": {"name": "a", "key": "b"}}},
    "spec.containers.0.env.0": {"name": "LANG", "value": "C"},
    "spec.containers.0.env.1.name": "TOKEN",
    "spec.containers.0.resources.limits.cpu": "4001m",
    "spec.containers.0.resources.limits.memory": "8193Mi",
    "spec.containers.0.resources.requests.cpu": "101m",
    "spec.containers.0.resources.requests.memory": "257Mi",
    "spec.volumes.0.emptyDir.sizeLimit": "10241Mi",
    "spec.volumes.1.emptyDir.sizeLimit": "10241Mi",
    "spec.volumes.2.emptyDir.sizeLimit": "2049Mi",
    "spec.volumes.2.emptyDir": {"sizeLimit": "2Gi"},
    "spec.volumes.2": {"name": "shm", "hostPath": {"path": "/dev/shm"}},
    "spec.terminationGracePeriodSeconds": 31,
    "spec.tolerations.0.tolerationSeconds": 31,
    "spec.schedulerName": "default-scheduler",
    "spec.restartPolicy": "Never",
    "spec.securityContext.seccompProfile": {"type": "Unconfined"},
    "metadata.name": f"-{NOTEBOOKS}",
    "metadata.ownerReferences.0.kind": "Node",
    "metadata.ownerReferences.0.uid": "00000000-0000-4000-8000-000000000000",
    f"metadata.annotations.{WORKER}": '{"notebook":"00000000-0000-4000-8000-000000000000","id":"w1"}',
    f"metadata.labels.{WORKER}": "w2",
}


class Field(NamedTuple):
    """One field of a JSON: the parts of its path, joined with dots."""

    parent: Any
    key: str | int
    path: str


def fields(body: Any, path: str = "") -> Iterator[Field]:
    """Yield every field, and every part of one."""
    items = body.items() if isinstance(body, dict) else enumerate(body) if isinstance(body, list) else ()
    for key, value in list(items):
        inner = f"{path}.{key}".lstrip(".")
        yield Field(body, key, inner)
        yield from fields(value, inner)


def changes(body: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """Yield path and kind of a change, and the body with it: each field once another, none, or with one more."""
    for _, _, path in fields(body):
        for kind in ("another", "none", "more"):
            changed = copy.deepcopy(body)
            (field,) = (each for each in fields(changed) if each.path == path)
            value = field.parent[field.key]
            if kind == "none":
                del field.parent[field.key]
            elif kind == "more" and isinstance(value, list) and value:
                value.append(copy.deepcopy(value[-1]))
            elif kind == "another" and not isinstance(value, dict | list):
                field.parent[field.key] = other(value)
            else:
                continue
            yield path, kind, changed


def other(value: Any) -> Any:
    """Return another value of that type: of an amount a larger one."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    return f"9{value}" if value[:1].isdigit() else f"{value}x"


def with_value(body: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    """Return the body with a value at this path; keys can have dots themselves."""
    changed = copy.deepcopy(body)
    parents = {field.path: field.parent[field.key] for field in fields(changed)}
    parent = max((known for known in parents if path.startswith(f"{known}.")), key=len)
    rest: str | int = path[len(parent) + 1 :]
    place = parents[parent]
    place[int(rest) if isinstance(place, list) else rest] = value
    return changed


class Ours:
    """The controller's identity, a notebook, and the pod that the template makes for it."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.api = Api(world.plane.kubeconfig, world.token(SYSTEM, "jupyter-gpu-workers"))
        text = chart.find(chart.render(VALUES, namespace=SYSTEM), "ConfigMap", "jupyter-gpu-workers")["data"]
        self.settings = parse(json.loads(text["settings.json"]), WorkerSettings)
        self.rich = self.notebook("rich", **RICH)
        self.template = worker_pod(self.rich, PART, self.settings.template)

    def notebook(self, name: str, **more: Any) -> Notebook:
        """Create a notebook with a service."""
        pod = slot_pod(name, metadata={"annotations": {SERVICE: encode(Service(1, (PART,)))}}, **more)
        found = read_notebook(self.world.place(pod, ONE))
        assert found
        return found

    def tries(self, body: dict[str, Any], pods: str = PODS) -> Answer:
        """Try to create a pod, without effect."""
        return self.api("POST", f"{pods}?dryRun=All", body)


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    """Yield a world with a notebook and the controller's account."""
    with some_plane() as plane:
        world = World(plane, tmp_path_factory.mktemp("workers"))
        world.build()
        made = Ours(world)
        yield made
        made.api.close()
        world.close()


def test_template_is_accepted(ours: Ours) -> None:
    """For a notebook with every field that is copied, and for one with none."""
    plain = worker_pod(ours.notebook("bare"), PART, ours.settings.template)
    for body in (ours.template, plain):
        answer = ours.tries(body)
        assert answer.ok, answer.message
    assert {path for path in FREE if not any(field.path == path for field in fields(ours.template))} == set()


def test_each_field_changed_once_is_refused(ours: Ours) -> None:
    """Each value another one, none, or once more; except for the few that are the notebook's."""
    passed, refused = [], []
    for path, kind, body in changes(ours.template):
        free = f"{path}.".startswith(tuple(f"{name}." for name in FREE)) or (path, kind) in HARMLESS
        answer = ours.tries(body)
        if answer.ok and not free:
            passed.append((path, kind))
        if answer.status == 403:
            refused.append((path, kind))
            assert "worker" in answer.message, answer.message
            assert not free, (path, kind, answer.message)
    assert not passed, sorted(passed)
    assert len(refused) > 80


@pytest.mark.parametrize("path", ADDED)
def test_field_that_the_template_lacks_is_refused(ours: Ours, path: str) -> None:
    """Each field by which a pod gets more than a worker needs, unless the API server leaves it out by itself."""
    answer = ours.tries(with_value(ours.template, path, ADDED[path]))
    left_out = answer.ok and not any(field.path == path for field in fields(answer.body))
    assert not left_out or path == "spec.containers.0.restartPolicy"
    assert left_out or answer.status in (403, 422), f"{answer.status} {answer.message}"


@pytest.mark.parametrize("path", REPLACED)
def test_worse_value_is_refused_by_the_policy(ours: Ours, path: str) -> None:
    """Values that the API server itself would take: the policy says no, and why."""
    answer = ours.tries(with_value(ours.template, path, REPLACED[path]))
    assert answer.status in ((403, 422) if path == "metadata.name" else (403,)), answer.message


def test_less_is_accepted(ours: Ours) -> None:
    """Amounts are the most that a worker may have, for a chart whose controller is not restarted yet."""
    for path, value in (
        ("spec.containers.0.resources.limits.cpu", "1"),
        ("spec.containers.0.resources.requests.memory", "1Mi"),
        ("spec.volumes.0.emptyDir.sizeLimit", "1Gi"),
        ("spec.volumes.2.emptyDir.sizeLimit", "64Mi"),
        ("spec.containers.0.resources.limits.ephemeral-storage", "1Gi"),
    ):
        answer = ours.tries(with_value(ours.template, path, value))
        assert answer.ok, answer.message


def test_values_of_the_chart_bound_the_template(ours: Ours) -> None:
    """Other values let another template pass, and no longer the old one."""
    pod = {"python": "/opt/python", "home": "/home/me", "priorityClassName": "low", "environment": []}
    values = {**VALUES, "workers": {**VALUES["workers"], "pod": pod}}
    text = chart.find(chart.render(values, namespace=SYSTEM), "ConfigMap", "jupyter-gpu-workers")["data"]
    settings = parse(json.loads(text["settings.json"]), WorkerSettings)
    body = worker_pod(ours.rich, PART, settings.template)
    ours.world.admin.need(
        "POST",
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "low"}, "value": 1},
    )
    assert ours.tries(body).status == 403
    try:
        ours.world.apply_policies(workers=values["workers"])
        assert ours.tries(body).ok
        assert ours.tries(ours.template).status == 403
    finally:
        ours.world.apply_policies()
    assert ours.tries(ours.template).ok


@pytest.mark.parametrize("who", ["editor", "masters", "hub", "scheduler", "cluster's controller", "notebook"])
def test_nobody_else_makes_a_worker(ours: Ours, who: str) -> None:
    """Neither with the pod nor later; neither by annotation nor by label; nor is one taken away."""
    api = ours.world.identities[who]
    marks = {"annotations": {WORKER: ours.template["metadata"]["annotations"][WORKER]}, "labels": {WORKER: "w1"}}
    for key, value in marks.items():
        made = api("POST", f"{PODS}?dryRun=All", slot_pod("forged", metadata={key: value}))
        assert made.status == 403, made.message
        for path in (f"{PODS}/lab", f"{PODS}/lab/status"):
            changed = api("PATCH", f"{path}?dryRun=All", {"metadata": {key: value}}, MERGE)
            assert changed.status == 403, changed.message
    told = api("PATCH", f"{PODS}/lab/status?dryRun=All", {"metadata": {"annotations": {STATUS: "{}"}}}, MERGE)
    assert told.status == 403, told.message
    assert api("POST", f"{PODS}?dryRun=All", slot_pod("forged", annotations={"worker-status": "{}"})).status == 403


def test_worker_stays_one(ours: Ours) -> None:
    """A worker's mark is neither changed nor taken away, also by the controller; who may delete pods may end it."""
    name = worker_name("rich", ours.rich.uid, "w1")
    made = ours.api.need("POST", PODS, ours.template)
    assert made["metadata"]["name"] == name
    for api in (ours.api, ours.world.identities["editor"], ours.world.identities["masters"]):
        for mark in ({"annotations": {WORKER: None}}, {"labels": {WORKER: None}}, {"labels": {WORKER: "w2"}}):
            for path in (f"{PODS}/{name}", f"{PODS}/{name}/status"):
                assert api("PATCH", path, {"metadata": mark}, MERGE).status == 403, mark
    assert ours.world.glass("PATCH", f"{PODS}/{name}?dryRun=All", {"metadata": {"labels": {WORKER: "w2"}}}, MERGE).ok
    assert ours.world.identities["editor"]("DELETE", f"{PODS}/{name}?dryRun=All").ok
    assert ours.api("POST", PODS, ours.template).status == 409
    ours.api.need("DELETE", f"{PODS}/{name}?gracePeriodSeconds=0")


def test_controller_tells_about_workers_and_changes_nothing_else(ours: Ours) -> None:
    """It writes and removes `worker-status` of any pod of its namespaces, and no other word, label or status."""
    path = f"{PODS}/rich/status"
    ours.api.need("PATCH", path, {"metadata": {"annotations": {STATUS: "{}"}}}, MERGE)
    for body in (
        {"metadata": {"annotations": {STATUS: "{}", PREFIX + "service": "{}"}}},
        {"metadata": {"annotations": {PREFIX + "allocated": "{}"}}},
        {"metadata": {"annotations": {PREFIX + "requested": "1"}}},
        {"metadata": {"annotations": {"example.org/other": "1"}}},
        {"metadata": {"labels": {"app": "a"}}},
        {"metadata": {"finalizers": ["example.org/never"]}},
        {"status": {"phase": "Failed"}},
    ):
        answer = ours.api("PATCH", path, body, MERGE)
        assert answer.status == 403, (body, answer.message)
    whole = ours.api("PATCH", path, [{"op": "remove", "path": "/metadata/annotations"}], JSON_PATCH)
    assert whole.status == 403, whole.message
    ours.api.need("PATCH", path, {"metadata": {"annotations": {STATUS: None}}}, MERGE)


def test_process_runs_with_its_own_rights(ours: Ours, tmp_path: Path) -> None:
    """It is elected, creates what is named, tells about it and removes it, under the policy, with its own token."""
    world = ours.world
    config = yaml.safe_load(Path(world.plane.kubeconfig).read_text())
    for user in config["users"]:
        user["user"] = {"token": world.token(SYSTEM, "jupyter-gpu-workers")}
    (tmp_path / "kubeconfig").write_text(yaml.safe_dump(config))
    text = chart.find(chart.render(VALUES, namespace=SYSTEM), "ConfigMap", "jupyter-gpu-workers")["data"]
    settings = {**json.loads(text["settings.json"]), "status": {"address": "127.0.0.1", "port": 0}}
    (tmp_path / "settings.json").write_text(json.dumps(settings))
    name = worker_name("own", ours.notebook("own").uid, "w1")
    environ = {**os.environ, "KUBECONFIG": str(tmp_path / "kubeconfig"), "POD_NAMESPACE": SYSTEM}
    environ.pop("KUBERNETES_SERVICE_HOST", None)
    words = [sys.executable, "-m", "jupyter_gpu_scheduler.workers", "--settings", str(tmp_path / "settings.json")]
    with (tmp_path / "log").open("wb") as log:
        process = subprocess.Popen(words, stdout=log, stderr=log, env=environ)
    try:
        until(lambda: world.admin("GET", f"{PODS}/{name}").ok, what="the worker")
        until(lambda: STATUS in world.admin.need("GET", f"{PODS}/own")["metadata"]["annotations"], what="its status")
        none = {"metadata": {"annotations": {SERVICE: None}}}
        world.glass.need("PATCH", f"{PODS}/own", none, MERGE)
        until(lambda: world.admin("GET", f"{PODS}/{name}").status == 404, what="the end of the worker")
        until(
            lambda: STATUS not in world.admin.need("GET", f"{PODS}/own")["metadata"].get("annotations", {}),
            what="no status",
        )
        assert ours.api("GET", f"/apis/coordination.k8s.io/v1/namespaces/{SYSTEM}/leases/jupyter-gpu-workers").ok
    finally:
        process.terminate()
        process.wait(30)
    assert "forbidden" not in (tmp_path / "log").read_text().lower()


@pytest.mark.parametrize("name", ["lab", "rich", "plain"])
def test_controller_ends_no_other_pod(ours: Ours, name: str) -> None:
    """It has the right to delete pods, and the policy leaves it those that it made."""
    answer = ours.api("DELETE", f"{PODS}/{name}?dryRun=All")
    assert answer.status == 403
    assert "may remove worker pods only" in answer.message


def test_controller_has_rights_in_its_namespaces_alone(ours: Ours) -> None:
    """Elsewhere it neither creates, lists nor changes; and nowhere does it read what it need not."""
    elsewhere = f"/api/v1/namespaces/{FOREIGN}/pods"
    body = with_value(ours.template, "metadata.namespace", FOREIGN)
    assert ours.tries(body, elsewhere).status == 403
    for path in (
        elsewhere,
        "/api/v1/pods",
        "/api/v1/nodes",
        f"{PODS}/lab/log",
        f"/api/v1/namespaces/{NOTEBOOKS}/secrets",
    ):
        assert ours.api("GET", path).status == 403, path
    assert ours.api("GET", PODS).ok
    assert ours.api("DELETE", f"{PODS}?dryRun=All").status == 403
    assert ours.api("POST", f"{PODS}/lab/exec?command=a", None).status == 403
