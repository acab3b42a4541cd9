"""The chart's life on a real cluster: it is installed, gives a notebook GPUs, is upgraded meanwhile, and removed."""

import base64
import json
import os
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from jupyter_gpu_node.gpus.simulated import uuid_of
from tests.cluster.testbed import Cluster, Existing, binaries, until
from tests.cluster.testbed.commands import CommandFailed
from tests.cluster.whole import pods
from tests.deploy import product

pytestmark = [pytest.mark.root, pytest.mark.cluster, pytest.mark.timeout(900)]
HERE = ("--namespace", product.NOTEBOOKS)
EXAMPLE = product.ROOT / "deploy" / "examples" / "notebook.yaml"
NOTEBOOKS = {"namespaces": [{"namespace": product.NOTEBOOKS, "serviceAccounts": ["notebook"]}]}
ENOUGH: dict[str, Any] = {"resources": {"limits": {"cpu": "2"}}}
LIMITED: dict[str, Any] = {
    "scheduler": ENOUGH,
    "kubeScheduler": ENOUGH,
    "node": ENOUGH,
    "hooks": {**ENOUGH, "priorityClassName": "system-cluster-critical"},
    "metrics": {"dashboard": {"enabled": True}},
    "networkPolicy": {"enabled": True},
    "limits": {"objects": [{"subject": {"kind": "Group", "name": "jupyter-gpu-tests"}, "max": 0.5}]},
}
"""Requests as a namespace with a strict quota demands them of every pod; switches that every cluster knows; a limit."""
OURS = (
    "clusterroles,clusterrolebindings,validatingadmissionpolicies,validatingadmissionpolicybindings,deployments,daemonsets,"
    "pods,jobs,services,endpointslices,secrets,configmaps,serviceaccounts,roles,rolebindings,leases,"
    "poddisruptionbudgets,networkpolicies,flowschemas,prioritylevelconfigurations"
)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Install the product and the example's notebook on two nodes. The tests run in their order."""
    with product.some_cluster() as cluster:
        cluster.namespace(product.NOTEBOOKS)
        quota(cluster)
        product.install(cluster, notebooks=NOTEBOOKS, **LIMITED)
        node = cluster.node_names[0]
        notebook = product.load(cluster, "notebook", node=node)["notebook"]
        objects = list(yaml.safe_load_all(EXAMPLE.read_text()))
        for item in objects:
            if item["kind"] == "Deployment":
                spec = item["spec"]["template"]["spec"]
                spec["containers"][0] |= {"image": notebook.reference, "imagePullPolicy": "IfNotPresent"}
                spec["nodeSelector"] = {"kubernetes.io/hostname": node}  # where the image is
        cluster.kubectl(*HERE, "apply", "-f", "-", stdin=yaml.safe_dump_all(objects))
        cluster.kubectl(*HERE, "rollout", "status", "deployment/notebook", "--timeout=90s", seconds=100)
        yield cluster


@pytest.mark.existing
def test_installed_product_runs(cluster: Cluster) -> None:
    """Everything is ready, the leader is found, the policies are there, and the hook's rights are gone."""
    pods = get(cluster, "pods", "-n", product.NAMESPACE)
    assert {ready(pod) for pod in pods} == {True}
    assert len([pod for pod in pods if "node" in pod["metadata"]["labels"]["app.kubernetes.io/component"]]) == 2
    for part in ("scheduler", "kube-scheduler"):
        both = [pod for pod in pods if pod["metadata"]["labels"]["app.kubernetes.io/component"] == part]
        assert len({pod["spec"]["nodeName"] for pod in both}) == len(both) == 2
    leads = get_lease(cluster, "jupyter-gpu-scheduler")
    assert {pod["metadata"]["name"]: pod["status"]["podIP"] for pod in pods}[leads] == leader_address(cluster)
    name = notebook(cluster)["metadata"]["name"]
    with pytest.raises(CommandFailed, match="written by the jupyter-gpu scheduler only"):
        cluster.kubectl(*HERE, "annotate", "pod", name, "jupyter-gpu.io/allocated={}", "--overwrite")
    assert "jupyter-gpu-hook" not in remains(cluster)
    assert [item["spec"]["max"] for item in get(cluster, "gpulimits")] == ["0.5"]


@pytest.mark.existing
def test_notebook_starts_with_no_gpu_and_gets_two(cluster: Cluster) -> None:
    """For an ordinary user without capabilities no device opens, then exactly those that were granted."""
    said = python(cluster, "import os; print(os.getuid(), open('/proc/self/status').read())").split()
    assert said[0] == "1000"
    assert said[said.index("CapEff:") + 1] == said[said.index("CapBnd:") + 1] == "0" * 16
    assert openable(cluster) == set()
    request(cluster, 2)
    assert len(openable(cluster)) == 2


@pytest.mark.existing
def test_notebook_survives_an_upgrade(cluster: Cluster) -> None:
    """Every part is replaced; the notebook keeps its GPUs, gets no other, and can have more afterwards."""
    before, own = notebook(cluster), openable(cluster)
    certificate = get(cluster, "secrets", "-n", product.NAMESPACE)[0]["data"]
    name = before["metadata"]["name"]
    cluster.kubectl(*HERE, "exec", "-i", name, "--", "sh", "-c", "cat > /tmp/prober.py", stdin=PROBER.read_text())
    python(cluster, "import pathlib; pathlib.Path('/tmp/stop').unlink(missing_ok=True)")  # of an earlier attempt
    words = [binaries.path("kubectl"), "--kubeconfig", cluster.kubeconfig, *HERE, "exec", name, "--"]
    words += ["python", "/tmp/prober.py", str(product.GPUS), "/tmp/stop"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as prober:
        try:
            product.install(cluster, notebooks=NOTEBOOKS, **product.merged(LIMITED, {"node": {"slots": 32}}))
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


@pytest.mark.parametrize("page", ["other-nodes.md", "lending.md"])
def test_upgrade_of_a_guide_is_accepted(cluster: Cluster, page: str) -> None:
    """The guide's own words reach the release, the namespace and values that exist."""
    text = (product.ROOT / "docs" / page).read_text(encoding="utf-8")
    (line,) = (line for line in text.splitlines() if line.startswith("helm upgrade "))
    chart = f"dist/jupyter-gpu-{yaml.safe_load((product.CHART / 'Chart.yaml').read_text())['version']}.tgz"
    words = [str(product.CHART) if word == chart else word for word in shlex.split(line)[1:]]
    assert str(product.CHART) in words
    assert "STATUS: pending-upgrade" in cluster.helm(*words, "--dry-run=server")


def test_cluster_s_own_kube_scheduler_asks_our_extender(cluster: Cluster, tmp_path: Path) -> None:
    """Configured as `helm` prints, it places a pod without a scheduler's name with its GPUs, or reports why not."""
    more = {"node": {"slots": 32}, "kubeScheduler": {"enabled": False}}
    product.install(cluster, notebooks=NOTEBOOKS, **product.merged(LIMITED, more))
    until(
        lambda: second(cluster) == ["lease.coordination.k8s.io/jupyter-gpu-kube-scheduler"], 60, "the second one to end"
    )
    both = [unscheduled("fits", wants=2), unscheduled("large", wants=product.GPUS + 1)]
    try:
        configure_kube_scheduler(cluster, tmp_path)
        cluster.kubectl(*HERE, "create", "-f", "-", stdin=yaml.safe_dump_all(both))
        until(lambda: shares_of(cluster, "fits") == 2, 60, "the pod to have its GPUs")
        assert named(cluster, "fits")["spec"]["schedulerName"] == "default-scheduler"
        assert not named(cluster, "large")["spec"].get("nodeName")
        until(lambda: f"only {product.GPUS} GPUs, {product.GPUS + 1} wanted" in refusal(cluster, "large"), 60, "why")
    finally:
        cluster.kubectl(*HERE, "delete", "pod", "fits", "large", "--ignore-not-found", "--wait=true")
        cluster.plane.configure("scheduler", ())
        cluster.restart("scheduler")


@pytest.mark.existing
def test_uninstall_leaves_nothing(cluster: Cluster) -> None:
    """Nothing of ours remains except for what running pods need, and the kind of limits; pods keep what they have."""
    own = openable(cluster)
    product.uninstall(cluster)
    assert openable(cluster) == own
    until(lambda: not remains(cluster), 60, f"the end of {remains(cluster)}")
    assert get(cluster, "gpulimits") == []
    for node in get(cluster, "nodes"):
        metadata = node["metadata"]
        assert not [key for key in (*metadata["annotations"], *metadata["labels"]) if key.startswith("jupyter-gpu.io/")]
    cluster.kubectl(*HERE, "delete", "deployment", "notebook", "--wait=true")


def test_uninstall_leaves_nothing_on_the_nodes(cluster: Cluster) -> None:
    """There is no pin, nothing for the kubelet to call, and no socket except those that a running pod has mounted."""
    until(lambda: not get(cluster, "pods", *HERE), 60, "the notebook to be gone")
    for each in cluster.nodes:
        slots = "/run/jupyter-gpu/slots"
        left = each.run("find", "/run/jupyter-gpu", "-mindepth", "1").split()
        assert all(path == slots or path.startswith(f"{slots}/") for path in left), left
        assert "jupyter-gpu" not in each.run("find", "/sys/fs/bpf")
        assert "jupyter-gpu" not in each.run("find", "/var/lib/kubelet/device-plugins")


def test_claims_written_between_two_installations_are_not_believed(cluster: Cluster) -> None:
    """A waiting pod that grants itself GPUs while no policy is there starts with none of them."""
    cluster.helm("uninstall", product.RELEASE, "--namespace", product.NAMESPACE, "--wait", "--ignore-not-found")
    node = cluster.node_names[0]
    shares = [{"uuid": uuid_of(index, node), "milli": 1000} for index in range(2)]
    granted = json.dumps({"observedGeneration": 1, "shares": shares})
    forged = pods.pod("forged", node=node, wants=2)
    forged["metadata"]["annotations"] |= {"jupyter-gpu.io/allocated": granted, "jupyter-gpu.io/attached": granted}
    cluster.kubectl(*HERE, "create", "-f", "-", stdin=yaml.safe_dump(forged))
    cluster.kubectl("annotate", "node", node, "jupyter-gpu.io/inventory=[]", "--overwrite")
    try:
        product.install(cluster, notebooks=NOTEBOOKS, **LIMITED)
        cluster.kubectl(*HERE, "wait", "--for=condition=Ready", "pod/forged", "--timeout=90s", seconds=100)
        opens = (
            f"for i in $(seq 0 {product.GPUS - 1}); do (exec 3<>/dev/jupyter-gpu/gpu$i) 2>/dev/null && echo $i; done"
        )
        assert cluster.kubectl(*HERE, "exec", "forged", "--", "sh", "-c", f"{opens}; true").split() == []
        assert "jupyter-gpu.io/requested" not in named(cluster, "forged")["metadata"]["annotations"]
        cluster.kubectl(*HERE, "annotate", "pod", "forged", "jupyter-gpu.io/requested=1")
        until(lambda: shares_of(cluster, "forged") == 1, 60, "what it asked for rightfully")
        assert len(cluster.kubectl(*HERE, "exec", "forged", "--", "sh", "-c", f"{opens}; true").split()) == 1
    finally:
        cluster.kubectl(*HERE, "delete", "pod", "forged", "--ignore-not-found", "--wait=true")


def quota(cluster: Cluster) -> None:
    """Allow no pod in the product's namespace that does not declare all of its resources, or has no class."""
    if isinstance(cluster, Existing):
        return  # it has its own rules
    cluster.namespace(product.NAMESPACE)
    said = {f"{kind}.{what}": "100" for kind in ("requests", "limits") for what in ("cpu", "memory")}
    said = {key: "100Gi" if key.endswith("memory") else value for key, value in said.items()}
    classes = ["system-cluster-critical", "system-node-critical"]
    only = {"scopeName": "PriorityClass", "operator": "NotIn", "values": classes}
    quotas = [
        ("whole", {"hard": said}),
        ("unclassed", {"hard": {"pods": "0"}, "scopeSelector": {"matchExpressions": [only]}}),
    ]
    for name, spec in quotas:
        body = {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": {"name": name}, "spec": spec}
        cluster.kubectl("-n", product.NAMESPACE, "apply", "-f", "-", stdin=json.dumps(body))
    until(lambda: len(get(cluster, "resourcequotas", "-n", product.NAMESPACE)) == 2, 60, "the quotas")
    with pytest.raises(CommandFailed, match="failed quota"):
        cluster.kubectl("-n", product.NAMESPACE, "run", "greedy", "--image=none", "--dry-run=server")


def get_lease(cluster: Cluster, name: str) -> str:
    """Return the holder of the lease."""
    found = json.loads(cluster.kubectl("get", "lease", name, "-n", product.NAMESPACE, "-o", "json"))
    return str(found["spec"]["holderIdentity"])


def test_uninstall_goes_on_without_a_lost_node(cluster: Cluster) -> None:
    """A silent kubelet delays nothing; when its node is back, the plugin there ends too."""
    product.install(cluster, notebooks=NOTEBOOKS, **LIMITED)  # as the test before left it, where that was run
    one, two = cluster.node_names
    monitor(cluster, "--node-monitor-grace-period=20s")  # usually 50
    cluster.stop(f"kubelet@{two}")
    try:
        words = ("wait", f"node/{two}", "--for=condition=Ready=Unknown", "--timeout=120s")
        cluster.kubectl(*words, seconds=130)
        began = time.monotonic()
        command = ["uninstall", product.RELEASE, "--namespace", product.NAMESPACE, "--wait"]
        helm, environment = binaries.path("helm"), {**os.environ, **cluster.environment}
        done = subprocess.run(
            [helm, *command], env=environment, capture_output=True, text=True, check=False, timeout=300
        )
        took = time.monotonic() - began
        said = done.stdout + done.stderr
        assert done.returncode == 0, said
        assert f"node {one}: cleaned" in said
        assert f"node {two}: not cleaned, as it is not ready" in said
        left = get(cluster, "pods", "-n", product.NAMESPACE)
        assert {pod["spec"]["nodeName"] for pod in left} <= {two}
        assert not [name for name in remains(cluster) if not name.startswith("pod/")]
        assert "jupyter-gpu" not in cluster.node(one).run("find", "/sys/fs/bpf")
    finally:
        cluster.start(f"kubelet@{two}")
        monitor(cluster)
    until(lambda: not remains(cluster), 120, f"the end of {remains(cluster)}")
    assert took < 120


def monitor(cluster: Cluster, *flags: str) -> None:
    """Restart the controllers, among them the node controller, with these flags."""
    cluster.plane.configure("controller-manager", flags)
    cluster.restart("controller-manager")


PROBER = Path(__file__).parent / "prober.py"


def get(cluster: Cluster, *words: str) -> list[dict[str, Any]]:
    """Return objects."""
    found: list[dict[str, Any]] = json.loads(cluster.kubectl("get", *words, "-o", "json"))["items"]
    return found


def notebook(cluster: Cluster) -> dict[str, Any]:
    """Return the notebook's pod."""
    (pod,) = get(cluster, "pods", *HERE, "-l", "app=notebook")
    return pod


def ready(pod: dict[str, Any]) -> bool:
    """Return whether all of its containers are ready."""
    return all(container["ready"] for container in pod["status"]["containerStatuses"])


def python(cluster: Cluster, code: str) -> str:
    """Run code in the notebook's container."""
    return cluster.kubectl(*HERE, "exec", notebook(cluster)["metadata"]["name"], "--", "python", "-c", code)


def openable(cluster: Cluster) -> set[int]:
    """Return the indices of the GPUs that the notebook can open."""
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
    """Request GPUs as an administrator, and wait until the notebook has them."""
    name = notebook(cluster)["metadata"]["name"]
    cluster.kubectl(*HERE, "annotate", "pod", name, f"jupyter-gpu.io/requested={gpus}", "--overwrite")

    def attached() -> bool:
        text = notebook(cluster)["metadata"]["annotations"].get("jupyter-gpu.io/attached", "{}")
        return len(json.loads(text).get("shares", ())) == gpus

    until(attached, 60, f"{gpus} GPUs")


def leader_address(cluster: Cluster) -> str:
    """Return the address behind the extender's Service."""
    (piece,) = get(cluster, "endpointslices", "-n", product.NAMESPACE)
    return str(piece["endpoints"][0]["addresses"][0])


def allocatable(cluster: Cluster) -> set[str]:
    """Return the allocatable slots of the nodes."""
    nodes = (node for node in get(cluster, "nodes") if node["metadata"]["name"] in cluster.node_names)
    return {node["status"]["allocatable"].get("jupyter-gpu.io/slot", "") for node in nodes}


def configure_kube_scheduler(cluster: Cluster, folder: Path) -> None:
    """Restart the control plane's kube-scheduler with what the chart tells administrators to add."""
    notes = cluster.helm("get", "notes", product.RELEASE, "--namespace", product.NAMESPACE)
    added = yaml.safe_load(notes[notes.index("extenders:") :].partition("\n\n")[0])
    assert "percentageOfNodesToScore: 100" in notes
    found = {each["metadata"]["name"]: each for each in get(cluster, "secrets", "-n", product.NAMESPACE)}
    (secret,) = (found[word] for word in notes.split() if word in found)
    tls = added["extenders"][0]["tlsConfig"]
    for key in ("caFile", "certFile", "keyFile"):  # of the control plane's machine, which is this one
        told = Path(tls[key])
        assert str(told.parent) in notes
        tls[key] = str(folder / told.name)
        (folder / told.name).write_bytes(base64.b64decode(secret["data"][told.name]))
    whole = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "clientConnection": {"kubeconfig": str(cluster.plane.folder / "scheduler.kubeconfig")},
        "leaderElection": {"leaderElect": False},
        "percentageOfNodesToScore": 100,
        **added,
    }
    (folder / "configuration.json").write_text(json.dumps(whole))
    cluster.plane.configure("scheduler", [f"--config={folder / 'configuration.json'}"])
    cluster.restart("scheduler")


def unscheduled(name: str, wants: int) -> dict[str, Any]:
    """Create a pod with a slot that names no scheduler."""
    made = pods.pod(name, wants=wants)
    del made["spec"]["schedulerName"]
    return made


def shares_of(cluster: Cluster, name: str) -> int:
    """Return how many GPUs a pod has."""
    return len(
        json.loads(named(cluster, name)["metadata"]["annotations"].get("jupyter-gpu.io/attached", "{}")).get(
            "shares", ()
        )
    )


def named(cluster: Cluster, name: str) -> dict[str, Any]:
    """Return a pod by name."""
    found: dict[str, Any] = json.loads(cluster.kubectl(*HERE, "get", "pod", name, "-o", "json"))
    return found


def refusal(cluster: Cluster, name: str) -> str:
    """Return kube-scheduler's latest message about a pod that it could not place."""
    words = ("get", "events", "--field-selector", f"involvedObject.name={name},reason=FailedScheduling", "-o", "json")
    return " ".join(each["message"] for each in json.loads(cluster.kubectl(*HERE, *words))["items"])


def second(cluster: Cluster) -> list[str]:
    """Return the objects of the second kube-scheduler."""
    return [name for name in remains(cluster) if "kube-scheduler" in name]


def remains(cluster: Cluster) -> list[str]:
    """Return the names of all objects of ours."""
    names = cluster.kubectl("get", OURS, "-A", "-o", "name").split()
    return [name for name in names if "jupyter-gpu" in name]
