"""Chart and examples on a real API server without nodes: every object is valid, upgrades keep what they must."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.testbed import ControlPlane, binaries, control_plane
from tests.cluster.testbed.commands import run
from tests.deploy import chart
from tests.deploy.test_chart import FULL, REAL, SIMULATED
from tests.deploy.vendor import vendor

pytestmark = pytest.mark.cluster
NAMESPACE = "jupyter-gpu"
EXAMPLE = chart.CHART.parents[1] / "examples" / "notebook.yaml"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """One API server for all."""
    with control_plane() as plane:
        for name in (NAMESPACE, "alice", "bob", "hub"):
            plane.namespace(name)
        yield plane


@pytest.mark.parametrize("values", [REAL, SIMULATED, FULL], ids=["real", "simulated", "full"])
def test_every_object_is_valid(plane: ControlPlane, values: dict[str, Any]) -> None:
    """The API server would take each of them, hooks, policies and cleaning pods included; no field is unknown to it."""
    files = chart.hook_files(values)
    more = [yaml.safe_load(text) for name, text in files.items() if name.startswith("validatingadmission")]
    cleaner = yaml.safe_load(files["cleaner.json"])
    cleaner["metadata"] = {"name": "cleaner", "namespace": NAMESPACE}
    objects = [*chart.render(values), *more, cleaner]
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=yaml.safe_dump_all(objects))
    assert said.count("(server dry run)") == len(objects)


def test_the_example_is_valid(plane: ControlPlane) -> None:
    """And asks for a slot, by a container that can do nothing."""
    text = EXAMPLE.read_text()
    said = plane.kubectl("apply", "--dry-run=server", "--validate=strict", "-f", "-", stdin=text)
    assert said.count("(server dry run)") == 2
    (container,) = list(yaml.safe_load_all(text))[1]["spec"]["template"]["spec"]["containers"]
    assert container["resources"]["limits"]["jupyter-gpu.io/slot"] == 1
    assert container["securityContext"]["capabilities"] == {"drop": ["ALL"]}


def test_an_upgrade_keeps_certificates_and_the_leader(plane: ControlPlane) -> None:
    """What the first installation made, and what the leader wrote, is not made again."""

    def helm(*words: str) -> str:
        return run(binaries.path("helm"), "--kubeconfig", plane.kubeconfig, *words, "--namespace", NAMESPACE)

    def seen() -> list[str]:
        keys = (
            "secret/jupyter-gpu-extender",
            "secret/jupyter-gpu-extender-client",
            "endpointslice/jupyter-gpu-scheduler",
        )
        found = [plane.kubectl("get", key, "-n", NAMESPACE, "-o", "json") for key in keys]
        return [str(yaml.safe_load(text).get("data") or yaml.safe_load(text).get("endpoints")) for text in found]

    helm("install", "jupyter-gpu", str(chart.CHART), *chart.REGISTRY, "--no-hooks")
    leader = '{"endpoints":[{"addresses":["10.1.2.3"]}]}'
    plane.kubectl("patch", "endpointslice", "jupyter-gpu-scheduler", "-n", NAMESPACE, "--type=merge", "-p", leader)
    before = seen()
    assert "10.1.2.3" in before[2]
    said = helm(
        "upgrade",
        "jupyter-gpu",
        str(chart.CHART),
        *chart.REGISTRY,
        "--no-hooks",
        "--set",
        "kubeScheduler.enabled=false",
    )
    assert seen() == before
    assert "percentageOfNodesToScore: 100" in said
    assert "urlPrefix: https://jupyter-gpu-scheduler.jupyter-gpu.svc" in said
    helm("uninstall", "jupyter-gpu", "--no-hooks")


@pytest.mark.parametrize("suffix", ["", "-gke.1", "-eks-8cce635", "+k3s1", "+rke2r1"])
def test_the_second_kube_scheduler_has_a_tag_that_exists(plane: ControlPlane, suffix: str, tmp_path: Path) -> None:
    """Kubernetes publishes plain versions; what a vendor's API server adds to its own is no tag of theirs."""
    with vendor(plane, f"v1.31.4{suffix}", tmp_path) as kubeconfig:
        words = ("install", "jupyter-gpu", chart.CHART, *chart.REGISTRY, "--namespace", NAMESPACE, "--dry-run=server")
        said = run(binaries.path("helm"), *words, environment={"KUBECONFIG": str(kubeconfig)})
    assert {line.split("image: ")[1] for line in said.splitlines() if "kube-scheduler:" in line} == {
        "registry.k8s.io/kube-scheduler:v1.31.4"
    }
