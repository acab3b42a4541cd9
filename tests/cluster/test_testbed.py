"""The testbed itself: clusters come up, work, stand faults, live side by side and leave nothing."""

import contextlib
import ipaddress
import json
import os
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cluster.testbed import (
    Cluster,
    ClusterError,
    ControlPlane,
    binaries,
    cgroups,
    control_plane,
    images,
    network,
    ports,
    services,
    shims,
    temporary_cluster,
    until,
)
from tests.cluster.testbed.processes import Process, spawn

pytestmark = pytest.mark.timeout(300)  # a cluster comes up in 10 s, on a machine that does much else in 60

SERVE = "cd /tmp && hostname >index.html && exec httpd -f -p 8080"


@pytest.fixture(scope="module")
def plane() -> Iterator[ControlPlane]:
    """Yield a control plane that no test breaks."""
    with control_plane() as made:
        yield made


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """Two nodes with a pod on each, `pod-1` and `pod-2`."""
    with temporary_cluster(nodes=2) as made:
        create(made, pod("pod-1", "node1"), pod("pod-2", "node2"))
        yield made


def pod(name: str, node: str, script: str = SERVE, **spec: Any) -> dict[str, Any]:
    """A pod that runs a script of BusyBox."""
    container = {"name": "main", "image": "busybox:1", "command": ["sh", "-c", script]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"nodeName": node, "terminationGracePeriodSeconds": 0, "containers": [container], **spec},
    }


def create(cluster: Cluster, *pods: dict[str, Any]) -> None:
    """Make the pods and wait until they are ready."""
    items = {"apiVersion": "v1", "kind": "List", "items": pods}
    cluster.kubectl("replace", "--force", "-f", "-", stdin=json.dumps(items))  # a test may be run once more
    names = [f"pod/{pod['metadata']['name']}" for pod in pods]
    cluster.kubectl("wait", "--for=condition=Ready", "--timeout=60s", *names, seconds=70)


def address(cluster: Cluster, name: str) -> str:
    """Return the address of a pod."""
    return cluster.kubectl("get", "pod", name, "--output=jsonpath={.status.podIP}")


def fetch(cluster: Cluster, name: str, host: str, port: int = 8080) -> str:
    """Return what a pod gets from an address that listens at once or soon; it ends with the name of the answering pod.

    BusyBox's own HTTP client crashes when it is linked statically.
    """
    ask = f"printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 5 {host} {port}"
    answer = until(lambda: cluster.kubectl("exec", name, "--", "sh", "-c", ask), what=f"{host}:{port} to answer")
    return answer.strip()


def traces(cluster: Cluster) -> dict[str, Any]:
    """Everything of a cluster that this machine still has."""
    words = str(cluster.folder).encode()
    return {
        "processes": [path.parent.name for path in Path("/proc").glob("[0-9]*/cmdline") if words in content(path)],
        "groups": cgroups.of_prefix(f"jg-{cluster.name}-"),
        "links": network.key_links(cluster.key),
        "mounts": shims.mounts(cluster.folder),
        "files": [cluster.folder] if cluster.folder.exists() else [],
    }


def content(path: Path) -> bytes:
    """Return the content of a file that may vanish."""
    try:
        return path.read_bytes()
    except OSError:
        return b""


# --- without nodes ----------------------------------------------------------------------------------------------------


@pytest.mark.cluster
def test_kubeconfig_has_the_user_it_was_made_for(plane: ControlPlane) -> None:
    """User and groups are those that were asked for, and have no right that was not granted."""
    config = plane.kubeconfig_for("alice/a+b", ["dev", "ops"])
    found = json.loads(plane.kubectl("auth", "whoami", "--output=json", config=config))["status"]["userInfo"]
    assert found["username"] == "alice/a+b"
    assert {"dev", "ops"} <= set(found["groups"])
    with pytest.raises(ClusterError, match="forbidden"):
        plane.kubectl("get", "pods", config=config)


@pytest.mark.cluster
def test_objects_outlive_a_crash_of_the_control_plane(plane: ControlPlane) -> None:
    """Objects are there again when etcd and the API server were killed and started."""
    plane.namespace("kept")
    with plane.without("apiserver", "etcd"):
        assert not plane.running("apiserver")
        assert not plane.running("etcd")
        with pytest.raises(ClusterError):
            plane.kubectl("get", "namespace", "kept")
    assert "kept" in plane.kubectl("get", "namespaces")


@pytest.mark.cluster
def test_abandoned_control_plane_is_removed_by_the_next() -> None:
    """A control plane whose process was killed leaves nothing once another one was made."""
    code = (
        "import os, signal\nfrom tests.cluster.testbed import control_plane\n"
        "with control_plane(['etcd']) as made:\n"
        "    print(made.folder, flush=True)\n    os.kill(os.getpid(), signal.SIGKILL)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    left = Path(ended.stdout.strip())
    process = Process.read(left / "processes" / "etcd.json")
    assert process is not None
    assert process.alive
    with control_plane(["etcd"]):
        assert not left.exists()
        assert not process.alive


def test_invalid_name_is_refused() -> None:
    """Names become parts of paths, links and control groups."""
    for name in ("", "../x", "A", "x" * 21, "-x", "x y"):
        with pytest.raises(ClusterError, match="name"):
            Cluster(name)


def test_missing_cluster_is_reported() -> None:
    """A part of a cluster that was never made is an error in words, and removing it is none."""
    nothing = Cluster("t-never-made")
    assert not nothing.exists
    with pytest.raises(ClusterError, match="no cluster t-never-made"):
        nothing.start("etcd")


WITHOUT_ITS_FIRST_THREAD = """
import ctypes, socket, sys, threading, time
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
threading.Thread(target=time.sleep, args=(float(sys.argv[2]),)).start()
print("listens", flush=True)
ctypes.CDLL(None).syscall(60 if sys.argv[3] == "x86_64" else 93, 0)  # exit(2): of this thread alone
"""


def test_process_lives_until_its_last_thread_is_gone(tmp_path: Path) -> None:
    """Its sockets stay open that long, so a successor on its port would find it in use."""
    (port,) = ports.free(1)
    words = (sys.executable, "-c", WITHOUT_ITS_FIRST_THREAD, str(port), "60", os.uname().machine)
    process = spawn(words, tmp_path / "log")
    until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z")
    assert process.alive
    process.end(grace=0)
    assert not process.alive
    socket.create_server(("127.0.0.1", port), reuse_port=False).close()


def test_free_ports_are_not_ephemeral() -> None:
    """An ephemeral port could belong to a client when a server that was stopped wants it back."""
    found = ports.free(20)
    assert len(set(found)) == 20
    lowest, highest = map(int, Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split())
    assert not [port for port in found if lowest <= port <= highest or port < 1024]
    with socket.create_server(("127.0.0.1", found[0])), pytest.raises(OSError, match="in use"):
        socket.create_server(("127.0.0.1", found[0]))


@pytest.mark.cluster
def test_failed_test_restores_the_parts_it_stopped(plane: ControlPlane) -> None:
    """The tests after it find the API server as it was."""

    def fails() -> None:
        with plane.without("apiserver"):
            assert not plane.running("apiserver")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    assert plane.kubectl("get", "--raw", "/readyz") == "ok"


@pytest.mark.cluster
def test_part_that_cannot_start_says_why_once() -> None:
    """The first error has the reason; those of the tests that follow only say that it does not start."""
    with control_plane() as broken:
        broken.kill("apiserver")
        broken.restore()
        assert broken.running("apiserver")
        broken.kill("apiserver")
        with socket.create_server(broken.endpoint):
            with pytest.raises(ClusterError, match="address already in use"):
                broken.restore()
            with pytest.raises(ClusterError, match=r"as was said before\.$"):
                broken.restore()


def test_process_is_not_taken_for_a_later_one(tmp_path: Path) -> None:
    """The same pid with another start time is another process, and gets no signal."""
    real = spawn(["/bin/sleep", "60"], tmp_path / "log")
    stranger = Process(real.pid, real.started - 1, real.boot)
    try:
        assert real.alive
        assert not stranger.alive
        stranger.end(grace=0)
        assert real.alive
    finally:
        real.end(grace=0)
    assert not real.alive


@given(st.lists(st.sampled_from(network.CANDIDATES), unique=True))
def test_addresses_overlap_no_route(used: list[ipaddress.IPv4Network]) -> None:
    """The chosen range is free; with none left there is an error."""
    if len(used) == len(network.CANDIDATES):
        with pytest.raises(ClusterError, match="No range"):
            network.choose(used)
    else:
        chosen = ipaddress.ip_network(f"{network.choose(used)}.0.0/16")
        assert not any(chosen.overlaps(other) for other in used)


def test_machine_with_routes_to_everything_is_refused() -> None:
    """Every candidate may be taken, by one wide route too."""
    with pytest.raises(ClusterError, match="No range"):
        network.choose([ipaddress.IPv4Network("0.0.0.0/0")])


def test_services_lead_to_ready_pods_only() -> None:
    """Ports are matched by name; a pod that is not ready, a service without address and UDP are left out."""
    ports = [{"name": "web", "port": 80}, {"name": "names", "port": 53, "protocol": "UDP"}]
    owner = {"namespace": "n", "name": "s"}
    slices = [
        {
            "metadata": {"namespace": "n", "labels": {"kubernetes.io/service-name": "s"}},
            "ports": [{"name": "web", "port": 8080}, {"name": "names", "port": 53}],
            "endpoints": [
                {"addresses": ["10.0.0.1"], "conditions": {"ready": True}},
                {"addresses": ["10.0.0.2"], "conditions": {"ready": False}},
            ],
        }
    ]
    known = [
        {"metadata": owner, "spec": {"clusterIP": "10.1.0.5", "ports": ports}},
        {"metadata": {"namespace": "n", "name": "headless"}, "spec": {"clusterIP": "None", "ports": ports}},
        {"metadata": {"namespace": "n", "name": "empty"}, "spec": {"clusterIP": "10.1.0.6", "ports": ports[:1]}},
    ]
    assert services.table(known, slices) == {("10.1.0.5", 80): (("10.0.0.1", 8080),), ("10.1.0.6", 80): ()}


def test_missing_go_says_to_install_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """It is reported where nothing is built and nothing can be."""
    for name, value in (("XDG_CACHE_HOME", tmp_path), ("PATH", tmp_path), ("KUBEBUILDER_ASSETS", tmp_path)):
        monkeypatch.setenv(name, str(value))
    assert set(binaries.missing()) == set(binaries.PACKAGES)
    with pytest.raises(ClusterError, match="Install Go"):
        binaries.path("etcd")


def test_given_programs_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """KUBEBUILDER_ASSETS goes before built ones; a program that it lacks is taken from those."""
    brought = tmp_path / "etcd"
    monkeypatch.setenv("KUBEBUILDER_ASSETS", str(tmp_path))
    brought.write_text("not a program")
    assert binaries.path("etcd") != brought
    brought.chmod(0o755)
    assert binaries.path("etcd") == brought
    assert binaries.path("kubectl").parent == binaries.cache()


@pytest.mark.root
def test_missing_root_says_to_use_sudo() -> None:
    """It is reported before anything is built or made."""
    os.seteuid(65534)
    try:
        with pytest.raises(ClusterError, match="sudo"):
            Cluster.create("t-never-made")
    finally:
        os.seteuid(0)


# --- with nodes -------------------------------------------------------------------------------------------------------


@pytest.mark.root
@pytest.mark.cluster
def test_pods_run_on_each_node(cluster: Cluster) -> None:
    """Commands run in them, logs can be read, and they reach each other across nodes."""
    create(cluster, pod("talker", "node1", "echo said; sleep 1000000"))
    assert cluster.kubectl("logs", "talker") == "said\n"
    assert cluster.kubectl("exec", "pod-2", "--", "hostname").strip() == "pod-2"
    assert fetch(cluster, "pod-1", address(cluster, "pod-2")).endswith("pod-2")


@pytest.mark.root
@pytest.mark.cluster
def test_service_leads_to_its_pod(cluster: Cluster) -> None:
    """Its address, a chosen one here, works from pods and from this machine."""
    chosen = cluster.service_ip(200)
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chosen"},
        "spec": {"clusterIP": chosen, "selector": {"app": "pod-2"}, "ports": [{"port": 80, "targetPort": 8080}]},
    }
    cluster.kubectl("apply", "-f", "-", stdin=json.dumps(service))
    assert fetch(cluster, "pod-1", chosen, 80).endswith("pod-2")
    with urllib.request.urlopen(f"http://{chosen}", timeout=60) as answer:
        assert answer.read() == b"pod-2\n"


@pytest.mark.root
@pytest.mark.cluster
def test_pod_reads_the_api_with_its_token(cluster: Cluster) -> None:
    """Address, certificate and token that every pod gets are those of this API server."""
    made = pod("reader", "node2", "sleep 1000000")
    made["spec"]["volumes"] = [{"name": "kubectl", "hostPath": {"path": str(binaries.path("kubectl"))}}]
    made["spec"]["containers"][0]["volumeMounts"] = [{"name": "kubectl", "mountPath": "/kubectl", "readOnly": True}]
    create(cluster, made)
    found = json.loads(cluster.kubectl("exec", "reader", "--", "/kubectl", "auth", "whoami", "--output=json"))
    user = found["status"]["userInfo"]
    assert user["username"] == "system:serviceaccount:default:default"
    assert user["extra"]["authentication.kubernetes.io/pod-name"] == ["reader"]


@pytest.mark.root
@pytest.mark.cluster
def test_nodes_share_nothing_that_belongs_to_one(cluster: Cluster) -> None:
    """Names, ports, pins of BPF and the usual folders differ between two nodes and this machine."""
    for node in cluster.nodes:
        node.run(
            "sh", "-c", "hostname >/var/lib/jupyter-gpu/own; hostname >/run/jupyter-gpu/own; mkdir /sys/fs/bpf/own"
        )
    for node in cluster.nodes:
        for folder in ("/var/lib/jupyter-gpu", "/run/jupyter-gpu"):
            assert node.run("cat", f"{folder}/own") == f"{node.name}\n"
            assert node.path(f"{folder}/own").read_text() == f"{node.name}\n"
            assert not Path(folder, "own").exists()
    assert not Path("/sys/fs/bpf/own").exists()
    assert all(node.path("/var/lib/kubelet/device-plugins/kubelet.sock").is_socket() for node in cluster.nodes)
    same = [pod(f"host-{node.name}", node.name, hostNetwork=True) for node in cluster.nodes]
    create(cluster, *same)
    for node in cluster.nodes:
        assert fetch(cluster, "pod-1", node.address).endswith(node.name)


@pytest.mark.root
@pytest.mark.cluster
def test_containers_outlive_the_programs_of_their_node(cluster: Cluster) -> None:
    """With containerd and the kubelet killed, even with nothing left that holds the node, a pod goes on as it was."""
    before = cluster.kubectl("get", "pod", "pod-1", "--output=jsonpath={.status.containerStatuses[0].containerID}")
    cluster.node("node1").kill("namespace")
    for part in ("containerd@node1", "kubelet@node1"):
        cluster.kill(part)
        assert not cluster.running(part)
    assert fetch(cluster, "pod-2", address(cluster, "pod-1")).endswith("pod-1")
    for part in ("kubelet@node1", "containerd@node1"):
        cluster.start(part)
    create(cluster, pod("later", "node1"))
    after = cluster.kubectl("get", "pod", "pod-1", "--output=jsonpath={.status.containerStatuses[0].containerID}")
    assert after == before
    assert fetch(cluster, "pod-1", address(cluster, "later")).endswith("later")


@pytest.mark.root
@pytest.mark.cluster
def test_image_is_loaded_where_it_is_asked_for(cluster: Cluster, tmp_path: Path) -> None:
    """It is loaded on one node or on all; an invalid archive is refused."""
    archive = tmp_path / "image.tar"
    images.write_archive(archive, "localhost/own:1", {"busybox": images.static_busybox().read_bytes()}, ["/busybox"])
    cluster.load_image(archive, "node1")
    assert [any("localhost/own:1" in image for image in node.images()) for node in cluster.nodes] == [True, False]
    cluster.load_image(archive)
    made = pod("image", "node2")
    made["spec"]["containers"][0] |= {"image": "localhost/own:1", "command": ["/busybox", "sleep", "1000000"]}
    create(cluster, made)
    with pytest.raises(ClusterError, match="no archive"):
        cluster.load_image(tmp_path / "nothing.tar")


@pytest.mark.root
@pytest.mark.cluster
def test_command_shows_and_uses_a_cluster(cluster: Cluster) -> None:
    """The exit status says whether all runs, and is kubectl's own where that is run; a missing cluster is an error."""

    def command(*words: str) -> subprocess.CompletedProcess[str]:
        script = Path(__file__).parents[2] / "scripts" / "lib" / "cluster.py"
        return subprocess.run([sys.executable, script, *words], capture_output=True, text=True, check=False, timeout=60)

    shown = command("status", "--name", cluster.name)
    assert shown.returncode == 0, shown.stderr
    assert str(cluster.kubeconfig) in shown.stdout
    cluster.stop("scheduler")
    assert command("--name", cluster.name, "status").returncode == 1
    cluster.start("scheduler")
    used = command("--name", cluster.name, "kubectl", "--namespace=default", "get", "pod", "pod-1", "--output=name")
    assert (used.returncode, used.stdout) == (0, "pod/pod-1\n")
    assert command("--name", cluster.name, "kubectl", "get", "pod", "none").returncode == 1
    assert command("--name", cluster.name, "helm", "list").returncode == 0
    missed = command("--name", "t-never-made", "kubectl", "get", "pods")
    assert missed.returncode == 1
    assert "no cluster t-never-made" in missed.stderr


@pytest.mark.root
@pytest.mark.cluster
def test_second_cluster_leaves_nothing(cluster: Cluster) -> None:
    """Two at once; the second is killed wholly, repaired, killed again and removed, and the first is untouched."""
    with temporary_cluster(nodes=1) as other:
        create(other, pod("pod-1", "node1"))
        assert {"node1", "node2"} <= set(cluster.kubectl("get", "nodes", "--output=name").replace("node/", "").split())
        crash(other)
        other.up()
        create(other, pod("pod-2", "node1"))
        assert fetch(other, "pod-2", address(other, "pod-2")).endswith("pod-2")
        assert all(traces(other)[kind] for kind in ("processes", "groups", "links", "files"))
        crash(other)
    assert not any(traces(other).values()), traces(other)
    other.down()
    assert fetch(cluster, "pod-2", address(cluster, "pod-1")).endswith("pod-1")


def crash(cluster: Cluster) -> None:
    """Kill every process of the cluster at once, and forget half of what was written down."""
    pids = {int(name) for name in traces(cluster)["processes"]}
    pids.update(*map(cgroups.processes, cgroups.of_prefix(f"jg-{cluster.name}-")))
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    until(lambda: not pids & {int(name) for name in traces(cluster)["processes"]}, what="the killed to be gone")
    for record in (cluster.folder / "processes").glob("*@*"):
        record.unlink()
