"""Processes that got past the rules: told, ended, and their GPU given to nobody meanwhile."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_gpu_node import cgroup
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


def test_a_descriptor_that_was_passed_to_another_pod(node: Node, tmp_path: Path) -> None:
    """Whoever got it is ended and told of; the pod that has the GPU keeps it, and its process runs on."""
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


def test_a_process_that_left_its_pod(node: Node) -> None:
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


def test_a_program_of_the_machine_is_told_but_not_ended(node: Node) -> None:
    """An administrator's tool may look at a GPU. While it does, a pod is not rid of that GPU."""
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


def test_a_program_that_was_there_before_the_pod_is_excused(node: Node) -> None:
    """A display server has the GPU open for ever; pods come and go all the same."""
    display = Child()
    try:
        display.run(f"global held; held = open_device({str(node.nodes[1])!r})")
        pod, _ = given(node, 1)
        pod.allocate(generation=2)
        pod.until_has()
    finally:
        display.end()


def test_a_pod_without_a_slot_is_not_given_anything(node: Node) -> None:
    """It is not in our care, and ends if it opens a GPU."""
    pod = node.pod(slot=False)
    child = pod.spawn()
    child.process.stdin.write(json.dumps(f"held = open_device({str(node.nodes[0])!r}); time.sleep(100)") + "\n")  # type: ignore[union-attr]
    child.process.stdin.flush()  # type: ignore[union-attr]
    until(lambda: dead(child), what="it to be ended")
    until(lambda: "GpuIntruder" in pod.events(), what="the event")
