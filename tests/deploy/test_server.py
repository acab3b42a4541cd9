"""Chart and examples on a real API server without nodes: every object is valid, upgrades keep what they must."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.testbed import ControlPlane, binaries, control_plane
from tests.cluster.testbed.commands import run
from tests.deploy import chart
from tests.deploy.test_chart import EVERYTHING, FULL, REAL, SIMULATED
from tests.deploy.vendor import vendor

pytestmark = pytest.mark.cluster
NAMESPACE = "jupyter-gpu"
FOREIGN = (
    ("monitoring.coreos.com", "ServiceMonitor", "Namespaced"),
    ("monitoring.coreos.com", "PrometheusRule", "Namespaced"),
    ("security.openshift.io", "SecurityContextConstraints", "Cluster"),
)
"""Kinds of other projects; this API server only knows that they exist."""
_SHAPE: dict[str, Any] = {
    "priorityClassName": "system-node-critical",
    "extraEnv": [{"name": "NODE_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}}],
    "podLabels": {"team": "gpus"},
    "podAnnotations": {"sidecar.example/inject": "no"},
    "nodeSelector": {"pool": "system"},
    "tolerations": [{"key": "dedicated", "operator": "Equal", "value": "gpus", "effect": "NoSchedule"}],
}
_SPREAD: dict[str, Any] = {
    "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "ScheduleAnyway"}],
    "affinity": {"nodeAffinity": {}},
    "podDisruptionBudget": {"maxUnavailable": "50%"},
    "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 1}},
}
SHAPED: dict[str, Any] = {
    "scheduler": {**_SHAPE, **_SPREAD},
    "kubeScheduler": {**_SHAPE, **_SPREAD},
    "node": {**_SHAPE, "updateStrategy": {"type": "OnDelete"}, "seLinuxOptions": {"type": "spc_t"}},
    "hooks": _SHAPE,
    "networkPolicy": {
        "enabled": True,
        "extenderFrom": [{"ipBlock": {"cidr": "10.0.0.0/28"}}],
        "metricsFrom": [{"namespaceSelector": {"matchLabels": {"name": "monitoring"}}, "podSelector": {}}],
    },
}
"""With everything said of pods that can be."""
EXAMPLE = chart.CHART.parents[1] / "examples" / "notebook.yaml"


def crd_name(group: str, kind: str, _: str) -> str:
    """Return plural and group."""
    return f"{kind.lower().rstrip('s')}s.{group}"


def crd(group: str, kind: str, scope: str) -> dict[str, Any]:
    """Return a definition of a kind whose fields are not checked."""
    plural = crd_name(group, kind, scope).partition(".")[0]
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": f"{plural}.{group}",
            "annotations": {"api-approved.kubernetes.io": "unapproved, a stand-in for tests"},
        },
        "spec": {
            "group": group,
            "scope": scope,
            "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Start one API server for all tests."""
    with control_plane() as plane:
        for name in (NAMESPACE, "alice", "bob", "hub"):
            plane.namespace(name)
        foreign = [crd(*words) for words in FOREIGN]
        plane.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(foreign))
        plane.kubectl("apply", "--server-side", "-f", str(chart.CHART / "crds"))  # as Helm does before all else
        plane.kubectl("wait", "--for=condition=Established", "--timeout=60s", "--all", "crd")
        yield plane


@pytest.mark.parametrize(
    "values", [REAL, SIMULATED, FULL, EVERYTHING, SHAPED], ids=["real", "simulated", "full", "all", "shaped"]
)
def test_every_object_is_valid(plane: ControlPlane, values: dict[str, Any]) -> None:
    """The API server would accept each of them, including hooks, policies and cleaning pods, without unknown fields."""
    files = chart.hook_files(values)
    more = [yaml.safe_load(text) for name, text in files.items() if name.startswith("validatingadmission")]
    cleaner = yaml.safe_load(files["cleaner.json"])
    cleaner["metadata"] = {"name": "cleaner", "namespace": NAMESPACE}
    objects = [*chart.render(values), *more, cleaner]
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert said.count("(server dry run)") == len(objects)


def test_example_is_valid(plane: ControlPlane) -> None:
    """It asks for a slot, by a container that can do nothing."""
    text = EXAMPLE.read_text()
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert said.count("(server dry run)") == 2
    (container,) = list(yaml.safe_load_all(text))[1]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["jupyter-gpu.io/slot"] == 1
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_upgrade_keeps_certificates_and_the_leader(plane: ControlPlane) -> None:
    """Certificates of the first installation are kept, and the chart leaves the leader's objects alone."""

    def helm(*words: str) -> str:
        return run(binaries.path("helm"), "--kubeconfig", plane.kubeconfig, *words, "--namespace", NAMESPACE)

    def seen() -> list[str]:
        keys = ("secret/jupyter-gpu-extender", "secret/jupyter-gpu-extender-client")
        found = [plane.kubectl("get", key, "-n", NAMESPACE, "-o", "json") for key in keys]
        return [str(yaml.safe_load(text)["data"]) for text in found]

    assert not [item for item in chart.render(EVERYTHING) if item["kind"] in ("EndpointSlice", "Endpoints")]
    helm("install", "jupyter-gpu", str(chart.CHART), *chart.REGISTRY, "--no-hooks")
    before = seen()
    plane.kubectl("create", "-n", NAMESPACE, "-f", "-", stdin=yaml.safe_dump(LEADER))
    no_other = ("--set", "kubeScheduler.enabled=false")
    said = helm("upgrade", "jupyter-gpu", str(chart.CHART), *chart.REGISTRY, "--no-hooks", *no_other)
    assert seen() == before
    slices = yaml.safe_load(plane.kubectl("get", "endpointslices", "-n", NAMESPACE, "-o", "json"))["items"]
    assert [each["endpoints"] for each in slices] == [LEADER["endpoints"]]
    assert "percentageOfNodesToScore: 100" in said
    assert "urlPrefix: https://jupyter-gpu-scheduler.jupyter-gpu.svc" in said
    helm("uninstall", "jupyter-gpu", "--no-hooks")
    plane.kubectl("delete", "endpointslice", "jupyter-gpu-scheduler", "-n", NAMESPACE)


LEADER: dict[str, Any] = {
    "apiVersion": "discovery.k8s.io/v1",
    "kind": "EndpointSlice",
    "metadata": {"name": "jupyter-gpu-scheduler"},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.1.2.3"], "conditions": {}}],
    "ports": [{"port": 8443}],
}


@pytest.mark.parametrize("suffix", ["", "-gke.1", "-eks-8cce635", "+k3s1", "+rke2r1"])
def test_second_kube_scheduler_has_an_existing_tag(plane: ControlPlane, suffix: str, tmp_path: Path) -> None:
    """Kubernetes publishes plain versions; suffixes of a vendor's API server are no tags of theirs."""
    with vendor(plane, f"v1.31.4{suffix}", tmp_path) as kubeconfig:
        words = ("install", "jupyter-gpu", chart.CHART, *chart.REGISTRY, "--namespace", NAMESPACE, "--dry-run=server")
        said = run(binaries.path("helm"), *words, environment={"KUBECONFIG": str(kubeconfig)})
    assert {line.split("image: ")[1] for line in said.splitlines() if "kube-scheduler:" in line} == {
        "registry.k8s.io/kube-scheduler:v1.31.4"
    }
