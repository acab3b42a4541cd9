"""The chart's whole life on a real cluster: installed, a notebook gets GPUs, upgraded while it runs, taken away."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.testbed import binaries, until
from tests.cluster.testbed.cluster import Cluster, temporary_cluster
from tests.cluster.testbed.commands import CommandFailed
from tests.deploy import product

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]
EXAMPLE = product.ROOT / "deploy" / "examples" / "notebook.yaml"
NOTEBOOKS = {"namespaces": [{"namespace": "default", "serviceAccounts": ["notebook"]}]}
OURS = (
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,deployments,daemonsets,"
    "pods,jobs,services,endpointslices,secrets,configmaps,serviceaccounts,roles,rolebindings,leases"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with the product and one notebook, the one of the examples. The tests come in their order."""
    with temporary_cluster(nodes=2) as cluster:
        product.install(cluster, notebooks=NOTEBOOKS)
        notebook = product.load(cluster, "notebook", node="node1")["notebook"]
        objects = list(yaml.safe_load_all(EXAMPLE.read_text()))
        for item in objects:
            if item["kind"] == "Deployment":
                spec = item["spec"]["template"]["spec"]
                spec["containers"][0] |= {"image": notebook.reference, "imagePullPolicy": "Never"}
                spec["nodeSelector"] = {"kubernetes.io/hostname": "node1"}  # where the image is
        cluster.kubectl("apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
        cluster.kubectl("rollout", "status", "deployment/notebook", "--timeout=90s", seconds=100)
        yield cluster


def test_what_is_installed_runs(cluster: Cluster) -> None:
    """Everything is ready, the leader is found, the policies are there, and the hook's rights are gone."""
    pods = get(cluster, "pods", "-n", product.NAMESPACE)
    assert {ready(pod) for pod in pods} == {True}
    assert len([pod for pod in pods if "node" in pod["metadata"]["labels"]["app.kubernetes.io/component"]]) == 2
    (leader,) = [pod for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/component"] == "scheduler"]
    assert leader_address(cluster) == leader["status"]["podIP"]
    with pytest.raises(CommandFailed, match="written by the jupyter-gpu scheduler only"):
        cluster.kubectl(
            "annotate", "pod", notebook(cluster)["metadata"]["name"], "jupyter-gpu.io/allocated={}", "--overwrite"
        )
    assert "jupyter-gpu-hook" not in remains(cluster)


def test_a_notebook_starts_with_no_gpu_and_gets_two(cluster: Cluster) -> None:
    """An ordinary user without capabilities: no device opens, then exactly those that it was given."""
    said = python(cluster, "import os; print(os.getuid(), open('/proc/self/status').read())").split()
    assert said[0] == "1000"
    assert said[said.index("CapEff:") + 1] == said[said.index("CapBnd:") + 1] == "0" * 16
    assert openable(cluster) == set()
    request(cluster, 2)
    assert len(openable(cluster)) == 2


def test_upgrade_while_the_notebook_runs(cluster: Cluster) -> None:
    """Every part is replaced; the notebook keeps its GPUs, gets no other, and can have more afterwards."""
    before, own = notebook(cluster), openable(cluster)
    certificate = get(cluster, "secrets", "-n", product.NAMESPACE)[0]["data"]
    name = before["metadata"]["name"]
    cluster.kubectl("exec", "-i", name, "--", "sh", "-c", "cat > /tmp/prober.py", stdin=PROBER.read_text())
    python(cluster, "import pathlib; pathlib.Path('/tmp/stop').unlink(missing_ok=True)")  # of an earlier attempt
    words = [binaries.path("kubectl"), "--kubeconfig", cluster.kubeconfig, "exec", name, "--"]
    words += ["python", "/tmp/prober.py", str(product.GPUS), "/tmp/stop"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as prober:
        try:
            product.install(cluster, notebooks=NOTEBOOKS, node={"slots": 32}, scheduler={"replicas": 2})
        finally:
            python(cluster, "open('/tmp/stop', 'w')")
        output, _ = prober.communicate(timeout=60)
    found = json.loads(output)
    assert {index for index in range(product.GPUS) if found["opened"][index]} == own
    assert {index for index in range(product.GPUS) if found["refused"][index]} == set(range(product.GPUS)) - own
    after = notebook(cluster)
    assert after["metadata"]["uid"] == before["metadata"]["uid"]
    assert after["status"]["containerStatuses"][0]["restartCount"] == 0
    assert get(cluster, "secrets", "-n", product.NAMESPACE)[0]["data"] == certificate
    addresses = {pod["status"].get("podIP") for pod in get(cluster, "pods", "-n", product.NAMESPACE)}
    until(lambda: leader_address(cluster) in addresses, 60, "a new leader")
    until(lambda: allocatable(cluster) == {"32"}, 60, "the new number of slots")
    request(cluster, 3)
    assert openable(cluster) > own


def test_uninstall_leaves_nothing(cluster: Cluster) -> None:
    """Nothing of ours is left but what running pods need; they keep what they have."""
    own = openable(cluster)
    product.uninstall(cluster)
    assert openable(cluster) == own
    until(lambda: not remains(cluster), 60, f"the end of {remains(cluster)}")
    for node in get(cluster, "nodes"):
        metadata = node["metadata"]
        assert not [key for key in (*metadata["annotations"], *metadata["labels"]) if key.startswith("jupyter-gpu.io/")]
    cluster.kubectl("delete", "deployment", "notebook", "--wait=true")
    for each in cluster.nodes:
        assert each.run("find", "/run/jupyter-gpu", "-mindepth", "1").split() == []
        assert "jupyter-gpu" not in each.run("find", "/sys/fs/bpf")
        assert "jupyter-gpu" not in each.run("find", "/var/lib/kubelet/device-plugins")


PROBER = Path(__file__).parent / "prober.py"


def get(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    """Objects."""
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", *words, "-o", "json"))["items"]
    return found


def notebook(cluster: Cluster) -> dict[str, Any]:
    """The one pod."""
    (pod,) = get(cluster, "pods", "-l", "app=notebook")
    return pod


def ready(pod: dict[str, Any]) -> bool:
    """Whether all its containers are."""
    return all(container["ready"] for container in pod["status"]["containerStatuses"])


def python(cluster: Cluster, code: str) -> str:
    """Runs it in the notebook's container."""
    return cluster.kubectl("exec", notebook(cluster)["metadata"]["name"], "--", "python", "-c", code)


def openable(cluster: Cluster) -> set[int]:
    """Indexes of the GPUs that the notebook can open."""
    code = f"""if True:
        import os
        for index in range({product.GPUS}):
            try:
                os.close(os.open(f"/dev/jupyter-gpu/gpu{{index}}", os.O_RDWR))
                print(index)
            except PermissionError:
                pass
    """
    return {int(word) for word in python(cluster, code).split()}


def request(cluster: Cluster, gpus: int) -> None:
    """As an administrator, and waits until the notebook has them."""
    name = notebook(cluster)["metadata"]["name"]
    cluster.kubectl("annotate", "pod", name, f"jupyter-gpu.io/requested={gpus}", "--overwrite")

    def attached() -> bool:
        text = notebook(cluster)["metadata"]["annotations"].get("jupyter-gpu.io/attached", "{}")
        return len(json.loads(text).get("shares", ())) == gpus

    until(attached, 60, f"{gpus} GPUs")


def leader_address(cluster: Cluster) -> str:
    """Where the extender's Service leads."""
    (piece,) = get(cluster, "endpointslices", "-n", product.NAMESPACE)
    return str(piece["endpoints"][0]["addresses"][0])


def allocatable(cluster: Cluster) -> set[str]:
    """Slots of the nodes."""
    return {node["status"]["allocatable"].get("jupyter-gpu.io/slot", "") for node in get(cluster, "nodes")}


def remains(cluster: Cluster) -> list[str]:
    """Names of objects of ours, wherever."""
    names = cluster.kubectl("get", OURS, "-A", "-o", "name").split()
    return [name for name in names if "jupyter-gpu" in name]
