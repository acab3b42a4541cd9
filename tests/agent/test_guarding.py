"""A node that cannot guard its pods says so everywhere, and says so again when it can."""

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from jupyter_gpu_node.agent import self_test
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.pins import Pins
from jupyter_gpu_node.devices.pod_cgroups import PodCgroups
from tests.agent import stage
from tests.agent.stage import PATIENCE, Api, Node, Pod
from tests.cluster.testbed import ControlPlane, until
from tests.kube.proxy import Proxy
from tests.node.conftest import Child

pytestmark = [pytest.mark.root, pytest.mark.cluster]


@pytest.fixture
def quiet(plane: ControlPlane, api: Api) -> Iterator[Node]:
    """A node whose plugin does not run yet."""
    made = Node(plane, api)
    try:
        yield made
    finally:
        made.close()


def writable(node: Node, how: str) -> None:
    """Let the node's bpffs be written to (``rw``) or not (``ro``)."""
    subprocess.run(["mount", "-o", f"remount,{how}", str(node.bpffs)], check=True)


def cannot(node: Node) -> bool:
    """Whether it tells that it cannot guard."""
    return "jupyter_gpu_can_guard 0.0" in node.get("/metrics")


def test_node_reports_that_it_cannot_guard_until_it_can(quiet: Node) -> None:
    """A pod that cannot be closed is what it notices first. What runs keeps its GPUs; then all is as before."""
    quiet.start()
    pod, child = quiet.running()
    pod.allocate(quiet.uuids[0])
    pod.until_has(quiet.uuids[0])
    assert not cannot(quiet)
    writable(quiet, "ro")
    try:
        later = quiet.pod()
        later.annotate("jupyter-gpu.io/test", "go")
        until(lambda: cannot(quiet), PATIENCE, "the figure to tell")
        assert "cannot be put in force on this node: " in (text := quiet.get("/readyz"))
        assert "Read-only file system" in text
        until(lambda: "GpusNotGuarded" in quiet.events(), PATIENCE, "the node's event")
        assert child.probe(*quiet.nodes) == "+---"
    finally:
        writable(quiet, "rw")
    until(lambda: not cannot(quiet), PATIENCE, "the figure to tell")
    until(lambda: "GpusGuarded" in quiet.events(), PATIENCE, "the node's event")
    assert "cannot be put in force" not in quiet.get("/readyz")
    inside = later.spawn()
    until(lambda: inside.probe(*quiet.nodes) == "----", PATIENCE, "the later pod to be closed", every=0.05)


def test_plugin_without_capabilities_offers_no_slots(quiet: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    """The missing capability is reported before the kubelet is offered any slot, with what to do."""
    rights = {number: name for number, name in stage.CAPABILITIES.items() if name != "BPF"}
    monkeypatch.setattr(stage, "CAPABILITIES", rights)
    quiet.start(wait=False)
    until(lambda: answers(quiet) and cannot(quiet), PATIENCE, "the figure to tell")
    until(lambda: "CAP_BPF" in quiet.get("/readyz"), PATIENCE, "the readiness to tell")
    until(lambda: "GpusNotGuarded" in quiet.events(), PATIENCE, "the node's event")


def answers(node: Node) -> bool:
    """Whether its port is open."""
    assert node.process is not None
    assert node.process.poll() is None, node.log()
    try:
        return bool(node.get("/metrics"))
    except OSError:
        return False


def groups() -> list[Path]:
    """Control groups of attempts of this process."""
    return list(PodCgroups.of_this_machine().root.glob(f"{self_test.NAME}{os.getpid()}"))


def test_self_test_leaves_nothing_behind(quiet: Node) -> None:
    """No pin and no group; and what one that was killed left goes with the next."""
    pins, places = Pins.at(quiet.bpffs / "pins"), PodCgroups.of_this_machine()
    gone = subprocess.Popen(["true"])
    gone.wait()
    left = places.root / f"{self_test.NAME}{gone.pid}"
    left.mkdir()
    self_test.attempt(pins, places)
    assert not left.exists()
    assert groups() == []
    assert [path.name for path in (quiet.bpffs / "pins").iterdir()] == []


def test_self_test_works_on_a_read_only_hierarchy(tmp_path: Path) -> None:
    """Rules can be attached there all the same."""
    unified = cgroup.mounts().unified
    assert unified is not None
    mount = tmp_path / "cgroup"
    mount.mkdir()
    subprocess.run(["mount", "--bind", str(unified.mount), str(mount)], check=True)
    try:
        subprocess.run(["mount", "-o", "remount,bind,ro", str(mount)], check=True)
        self_test.attempt(Pins(None), PodCgroups(mount))
    finally:
        subprocess.run(["umount", str(mount)], check=True)


def test_self_test_without_a_hierarchy_fails_with_the_reason(tmp_path: Path) -> None:
    """Nothing there can hold rules."""
    with pytest.raises(OSError, match=r"Reading the device rules|No such file"):
        self_test.attempt(Pins(None), PodCgroups(tmp_path / "none"))


def test_second_plugin_waits_for_the_first(quiet: Node) -> None:
    """With an older view of the world it could open what the first has closed. Then it takes over."""
    quiet.start()
    pod, child = quiet.running()
    pod.allocate(quiet.uuids[1])
    pod.until_has(quiet.uuids[1])
    first = quiet.process
    assert first is not None
    quiet.start(wait=False)
    second = quiet.process
    assert second is not None
    lock = quiet.folder / "state" / "plugin.lock"

    def waits() -> bool:
        files = Path(f"/proc/{second.pid}/fd").iterdir()
        return any(file.exists() and file.samefile(lock) for file in files)

    until(waits, PATIENCE, "the second plugin to wait")
    pod.allocate(generation=2)
    pod.until_has()
    assert second.poll() is None
    assert [name.split("_")[0] for name in quiet.pins()] == [pod.uid]
    assert child.probe(*quiet.nodes) == "----"
    first.kill()
    first.wait()
    until(lambda: answers(quiet) and quiet.synced(), PATIENCE, "the second plugin to take over")
    pod.allocate(quiet.uuids[2], generation=3)
    pod.until_has(quiet.uuids[2])


def figure(node: Node, name: str) -> float:
    """One of the plugin's figures."""
    found = re.search(rf"^{name} (\S+)$", node.get("/metrics"), re.MULTILINE)
    return float(found[1]) if found else 0.0


def test_slow_start_ends_no_process(plane: ControlPlane, api: Api) -> None:
    """Beside a pod that has its GPU open, and one of the system: for as long as it does not know of them, and after."""
    made = Node(plane, api, auditSeconds=0.05, systemNamespaces=["default"])
    reach = json.loads(plane.kubeconfig.read_text())
    server = urlsplit(reach["clusters"][0]["cluster"]["server"])
    proxy = Proxy(int(server.port or 0))

    async def begin() -> None:
        await proxy.__aenter__()
        proxy.stall()

    try:
        api.run(begin())
        made.start()
        pod, child = made.running()
        pod.allocate(made.uuids[0])
        pod.until_has(made.uuids[0])
        child.run(f"global held; held = open_device({str(made.nodes[0])!r})")
        exporter = made.pod(slot=False).spawn()
        made.kill()
        exporter.run(f"global held; held = open_device({str(made.nodes[3])!r})")
        reach["clusters"][0]["cluster"]["server"] = f"https://{server.hostname}:{proxy.port}"
        config = made.folder / "slow"
        config.write_text(json.dumps(reach))
        made.file.write_text(json.dumps({**made.settings, "kubeconfig": str(config)}))
        made.start(wait=False)
        until(lambda: answers(made), what="the plugin's port")
        time.sleep(1.5)  # thirty times what the audit would wait
        assert (ended(child), ended(exporter)) == (False, False)
        assert "not known" in made.get("/readyz")
        proxy.flow()
        until(lambda: figure(made, "jupyter_gpu_audits_total") >= 5, what="some audits")
        assert (ended(child), ended(exporter)) == (False, False)
        assert child.probe(*made.nodes) == "+---"
        assert pod.has == [made.uuids[0]]
        assert figure(made, "jupyter_gpu_intruders_total") == 0
    finally:
        made.close()
        api.run(proxy.__aexit__(None, None, None))


def ended(child: Child) -> bool:
    """Whether it runs no more."""
    return child.process.poll() is not None


def slice_of(pod: Pod) -> Path:
    """Return the control group of the pod under a kubelet with the systemd driver."""
    name = f"kubepods-besteffort-pod{pod.uid.replace('-', '_')}.slice"
    return pod.node.top / "kubepods.slice" / "kubepods-besteffort.slice" / name


def remove(group: Path) -> None:
    """An empty group and those below it."""
    until(lambda: not cgroup.populated(group), what="the group to be empty", every=0.01)
    for directory in [*sorted((path for path in group.rglob("*") if path.is_dir()), reverse=True), group]:
        directory.rmdir()


def restarted_elsewhere(pod: Pod, wanted: str, *given: str) -> None:
    """Its container starts anew at the new place, with what it was given."""
    for child in pod.children:
        child.end()
    until(lambda: not cgroup.populated(pod.group), what="the old group to be empty", every=0.01)
    new = slice_of(pod) / "cri-containerd-1.scope"
    new.mkdir(parents=True)
    child = pod.spawn(inside=False)
    cgroup.enter(new, child.pid)
    pod.allocate(*given, generation=2)  # as good a reason for a step as the start of a container
    until(lambda: child.probe(*pod.node.nodes) == wanted, PATIENCE, f"{pod.name} to be {wanted}")
    assert pod.group.exists()


def test_empty_group_does_not_hide_one_with_processes(node: Node) -> None:
    """The kubelet's cgroup driver was changed: from the start, and while the pod was guarded at its old place."""
    early, late = node.pod(), node.running()[0]
    late.allocate(node.uuids[1])
    late.until_has(node.uuids[1])
    try:
        restarted_elsewhere(early, "----")
        restarted_elsewhere(late, "-+--", node.uuids[1])
    finally:
        for pod in (early, late):
            for child in pod.children:
                child.end()
            if slice_of(pod).exists():
                remove(slice_of(pod))


def test_pod_in_two_groups_cannot_be_guarded(node: Node) -> None:
    """Rules on one would not hold for the other: the message says to delete it."""
    pod, _ = node.running()
    new = slice_of(pod) / "cri-containerd-1.scope"
    new.mkdir(parents=True)
    child = pod.spawn(inside=False)
    cgroup.enter(new, child.pid)
    try:
        with pytest.raises(OSError, match="has processes in two control groups"):
            PodCgroups(node.top).find(pod.uid)
    finally:
        child.end()
        remove(slice_of(pod))


@pytest.fixture
def legacy(quiet: Node) -> Iterator[Path]:
    """The node's top in the v1 tree."""
    devices = cgroup.mounts().devices
    if devices is None:
        pytest.skip("this machine has no cgroup v1")
    top = Path(devices.mount) / quiet.top.name
    top.mkdir()
    yield top
    for directory in [*sorted((path for path in top.rglob("*") if path.is_dir()), reverse=True), top]:
        directory.rmdir()


def test_runtime_of_v1_alone_offers_no_slots(quiet: Node, legacy: Path) -> None:
    """Nothing would be guarded: the node says why, until its runtime is another."""
    quiet.start()
    pod = quiet.pod(group=False)
    group = legacy / "kubepods" / "besteffort" / f"pod{pod.uid}" / "1"
    group.mkdir(parents=True)
    child = pod.spawn(inside=False)
    cgroup.enter(group, child.pid)
    pod.make_group()  # last: the plugin reads both when it first sees it
    pod.annotate("jupyter-gpu.io/test", "go")
    until(lambda: cannot(quiet), PATIENCE, "the figure to tell")
    assert f"keeps the processes of pod {pod.uid} out of the cgroup v2 tree" in quiet.get("/readyz")
    until(lambda: "GpusNotGuarded" in quiet.events(), PATIENCE, "the node's event")
    assert "jupyter_gpu_slots_offered 0.0" in quiet.get("/metrics")
    child.end()
    until(lambda: not cannot(quiet), PATIENCE, "the figure to tell")
    assert "jupyter_gpu_slots_offered" in quiet.get("/metrics")
