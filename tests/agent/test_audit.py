"""Processes that got past the rules: reported, ended, and their GPU granted to no pod meanwhile."""

import contextlib
import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu.kube import KubeError
from jupyter_gpu_node.devices import cgroup
from tests.agent.stage import Node, Pod
from tests.cluster.testbed import until
from tests.node.conftest import Child

pytestmark = [pytest.mark.root, pytest.mark.cluster]


def dead(child: Child) -> bool:
    return child.process.poll() is not None


def uts(pid: int | str) -> int:
    return Path(f"/proc/{pid}/ns/uts").stat().st_ino


def given(node: Node, number: int) -> tuple[Pod, Child]:
    """A pod that has one GPU."""
    pod, child = node.running()
    pod.allocate(node.uuids[number])
    pod.until_has(node.uuids[number])
    return pod, child


def test_receiver_of_a_passed_descriptor_is_ended(node: Node, tmp_path: Path) -> None:
    """The process that got it is ended and reported; the pod that has the GPU keeps it, and its process runs on."""
    _, owner = given(node, 0)
    thief_pod, thief = node.running()
    address = str(tmp_path / "s")
    thief.run(f"global s; s = socket.socket(socket.AF_UNIX); s.bind({address!r}); s.listen()")
    owner.run(f"global f; f = open_device({str(node.nodes[0])!r})")
    owner.run(f"global c; c = socket.socket(socket.AF_UNIX); c.connect({address!r})")
    owner.run("socket.send_fds(c, [b'x'], [f])")
    assert thief.process.stdin is not None
    code = "got = socket.recv_fds(s.accept()[0], 1, 1); time.sleep(100)"
    thief.process.stdin.write(json.dumps(code) + "\n")
    thief.process.stdin.flush()
    until(lambda: dead(thief), what="the thief to be ended")
    until(lambda: "GpuIntruder" in thief_pod.events(), what="the event")
    assert owner.probe(*node.nodes) == "+---"
    assert "jupyter_gpu_intruders_total 0.0" not in node.get("/metrics")


def test_process_that_left_its_pod_is_ended(node: Node) -> None:
    """Outside of every group, but with a namespace of its pod: it opened a GPU that its pod never got."""
    pod, _ = node.running()
    flags = "os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK"
    code = f"import os, sys; sys.stdin.readline(); held = os.open(sys.argv[1], {flags}); sys.stdin.readline()"
    inside = subprocess.Popen(["unshare", "--uts", "sleep", "1000"])
    try:
        until(lambda: uts(inside.pid) != uts("self"))
        cgroup.enter(pod.group / "container", inside.pid)
        escaped = subprocess.Popen(
            ["nsenter", f"--uts=/proc/{inside.pid}/ns/uts", sys.executable, "-c", code, str(node.nodes[2])],
            stdin=subprocess.PIPE,
        )
        assert escaped.stdin is not None
        escaped.stdin.write(b"\n")
        escaped.stdin.flush()
        until(lambda: escaped.poll() is not None, what="the escaped process to be ended")
        assert escaped.returncode == -9
        escaped.stdin.close()
        until(lambda: "GpuIntruder" in json.dumps(node.events()), what="the event")
    finally:
        inside.kill()
        inside.wait()


def test_program_of_the_machine_is_reported_but_not_ended(node: Node) -> None:
    """An administrator's tool may open a GPU. While it does, no pod has released that GPU."""
    pod, _ = given(node, 1)
    tool = Child()
    try:
        tool.run(f"global held; held = open_device({str(node.nodes[1])!r})")
        until(lambda: "jupyter_gpu_strangers_total 0.0" not in node.get("/metrics"), what="the tool to be noticed")
        pod.allocate(generation=2)
        pod.until_has(draining=(node.uuids[1],))
        assert pod.attached is not None
        assert pod.attached.draining[0].holders[0].foreign
        assert tool.run("1 + 1") == 2
        tool.run("os.close(held)")
        pod.until_has()
    finally:
        tool.end()


def test_program_older_than_the_pod_is_excused(node: Node) -> None:
    """A display server has the GPU open for ever; pods come and go all the same."""
    display = Child()
    try:
        display.run(f"global held; held = open_device({str(node.nodes[1])!r})")
        pod, _ = given(node, 1)
        pod.allocate(generation=2)
        pod.until_has()
    finally:
        display.end()


def test_pod_without_a_slot_may_open_no_gpu(node: Node) -> None:
    """It is not in our care, and ends if it opens a GPU."""
    pod = node.pod(slot=False)
    child = pod.spawn()
    child.process.stdin.write(json.dumps(f"held = open_device({str(node.nodes[0])!r}); time.sleep(100)") + "\n")  # type: ignore[union-attr]
    child.process.stdin.flush()  # type: ignore[union-attr]
    until(lambda: dead(child), what="it to be ended")
    until(lambda: "GpuIntruder" in pod.events(), what="the event")


def test_pods_of_the_gpu_operator_are_trusted_by_namespace(node: Node) -> None:
    """Only administrators make pods there; no name or label that any pod can take is enough."""
    with contextlib.suppress(KubeError):
        node.api.run(node.api.kube.create("/api/v1/namespaces", {"metadata": {"name": "gpu-operator"}}))
    exporter = node.pod(slot=False, namespace="gpu-operator", app="nvidia-dcgm-exporter")
    keeper, pretender = exporter.spawn(), node.pod(slot=False, app="nvidia-dcgm-exporter").spawn()
    for child in (keeper, pretender):
        child.run("libc.prctl(15, b'nvidia-persiste', 0, 0, 0)")
    for child in (keeper, pretender):
        child.run(f"global held; held = open_device({str(node.nodes[3])!r})")
    until(lambda: dead(pretender), what="the other to be ended")
    count = audits(node)
    until(lambda: audits(node) > count + 5, what="some audits")
    assert not dead(keeper)


def test_pods_of_the_gpu_operator_are_trusted_by_a_label_and_privilege(node: Node) -> None:
    """Without the right to a privileged pod the label gains nothing; and a trusted pod delays no release."""
    mine, _ = node.running()
    mine.allocate(node.uuids[2])
    mine.until_has(node.uuids[2])
    exporter = node.pod(slot=False, app="nvidia-dcgm-exporter", privileged=True)
    keeper, pretender = exporter.spawn(), node.pod(slot=False, app="nvidia-dcgm-exporter").spawn()
    for child in (keeper, pretender):
        child.run(f"global held; held = open_device({str(node.nodes[2])!r})")
    until(lambda: dead(pretender), what="the other to be ended")
    mine.allocate(generation=2)
    mine.until_has()
    count = audits(node)
    until(lambda: audits(node) > count + 5, what="some audits")
    assert not dead(keeper)


def test_daemon_of_the_machine_is_excused_by_its_name(node: Node) -> None:
    """Outside of every pod; it delays no release although it opened the GPU after the pod began. Others do."""
    pod, child = node.running()
    daemon, other = Child(), Child()
    try:
        pod.allocate(*node.uuids[:2])
        pod.until_has(*node.uuids[:2])
        for one, name, path in ((daemon, "nvidia-persiste", node.nodes[0]), (other, "something", node.nodes[1])):
            one.run(f"libc.prctl(15, {name.encode()!r}, 0, 0, 0)")
            one.run(f"global held; held = open_device({str(path)!r})")
        pod.allocate(generation=2)
        pod.until_has(draining=(node.uuids[1],))
        assert child.probe(*node.nodes) == "----"
        other.end()
        pod.until_has()
        assert not dead(daemon)
    finally:
        daemon.end()
        other.end()


def audits(node: Node) -> float:
    """Return the number of audits so far."""
    lines = node.get("/metrics").splitlines()
    return next(float(line.split()[1]) for line in lines if line.startswith("jupyter_gpu_audits_total "))
