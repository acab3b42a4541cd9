"""Facts that a restarted plugin takes for granted, and those it wants to see proven."""

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED
from jupyter_gpu_node.gpus import simulated
from tests.agent.stage import PATIENCE, Node, Pod
from tests.cluster.testbed import until
from tests.node.conftest import Child

pytestmark = [pytest.mark.root, pytest.mark.cluster]
WATCH = """
def watch(path):
    while not stop.wait(0.001):
        if probe(path) != "+":
            failed.append(path)
"""


@pytest.fixture
def pair(node: Node) -> Iterator[tuple[tuple[Pod, Child], tuple[Pod, Child]]]:
    """Two closed pods with a process each."""
    yield node.running(), node.running()
    if node.process is None:
        node.start()


def annotations(pod: Pod) -> dict[str, str | None]:
    """The decision and the record of a pod as they are now."""
    found = pod.json()["metadata"].get("annotations") or {}
    return {key: found.get(key) for key in (ALLOCATED, ATTACHED)}


def test_restart_keeps_open_devices_open(node: Node, pair: tuple[tuple[Pod, Child], tuple[Pod, Child]]) -> None:
    """The rules in force are read from the kernel, and the devices that they allow stay open."""
    for index, (pod, child) in enumerate(pair):
        pod.allocate(node.uuids[index])
        pod.until_has(node.uuids[index])
        child.run("failed, stop = [], threading.Event()")
        child.run(WATCH)
        child.run(f"threading.Thread(target=watch, args=({str(node.nodes[index])!r},), daemon=True).start()")
    node.kill()
    node.start()
    for index, (pod, child) in enumerate(pair):
        pod.allocate(node.uuids[index], node.uuids[index + 2], generation=2)
        pod.until_has(node.uuids[index], node.uuids[index + 2])
        assert child.run("stop.set() or failed") == []


@pytest.mark.parametrize("step", [1, -1], ids=["old pod heard of first", "new pod heard of first"])
def test_record_older_than_a_release_opens_nothing(
    node: Node, pair: tuple[tuple[Pod, Child], tuple[Pod, Child]], step: int
) -> None:
    """The API server reports what was before a GPU went on to another pod, whose processes have it until they end."""
    (old, out), (new, inside) = pair[::step]
    before = annotations(new)
    old.allocate(node.uuids[0])
    old.until_has(node.uuids[0])
    stale = annotations(old)
    old.allocate(generation=2)
    old.until_has()
    new.allocate(node.uuids[0])
    new.until_has(node.uuids[0])
    inside.run(f"held = open_device({str(node.nodes[0])!r})")
    node.kill()
    for pod, told in ((old, stale), (new, before)):
        for key, text in told.items():
            pod.annotate(key, text)
    out.run("seen, stop = [], threading.Event()")
    out.run("def watch(path):\n    while not stop.wait(0.001): seen.append(probe(path))\n")
    out.run(f"threading.Thread(target=watch, args=({str(node.nodes[0])!r},), daemon=True).start()")
    node.start()
    new.until_has(draining=(node.uuids[0],))
    assert out.run("set(seen)") == {"-"}
    inside.run("os.close(held)")
    new.until_has()
    old.until_has(node.uuids[0])


def test_unknown_gpu_drains_until_it_is_known(node: Node, pair: tuple[tuple[Pod, Child], tuple[Pod, Child]]) -> None:
    """Gone when the plugin started, it cannot be scanned for: it drains until it is back, or the pod has ended."""
    (pod, child), (second, _) = pair
    for one, index in ((pod, 0), (second, 1)):
        one.allocate(node.uuids[index])
        one.until_has(node.uuids[index])
    child.run(f"held = open_device({str(node.nodes[0])!r})")
    node.kill()
    directory = node.folder / "state" / "simulated"
    for index in (0, 1):
        simulated.unplug(directory, node.uuids[index], node=node.name)
    try:
        pod.allocate(generation=2)
        second.allocate(generation=2)
        node.start()
        pod.until_has(draining=(node.uuids[0],))
        second.until_has(draining=(node.uuids[1],))
        assert child.probe(node.nodes[0]) == "-"
        second.remove_group()
        second.delete()
        until(lambda: not any(second.uid in name for name in node.pins()), PATIENCE, "the second pod to be forgotten")
        assert pod.draining == [node.uuids[0]]
    finally:
        for index in (0, 1):
            simulated.set_health(directory, node.uuids[index], None, node=node.name)
    until(lambda: len(node.inventory) == len(node.uuids), PATIENCE, "all GPUs to be back")
    assert pod.draining == [node.uuids[0]]
    child.run("os.close(held)")
    pod.until_has()


def test_pod_that_has_not_begun_delays_no_grant(node: Node) -> None:
    """Its image is still pulled, say: it has no group, so it has nothing open."""
    waiting = node.pod(group=False)
    waiting.allocate(node.uuids[0])
    pod, child = node.running()
    pod.allocate(node.uuids[1], node.uuids[2])
    pod.until_has(node.uuids[1], node.uuids[2])
    assert child.probe(*node.nodes) == "-++-"
    assert waiting.has == []


def test_stopped_process_is_scanned_like_any_other(node: Node) -> None:
    """A process stopped on a shared GPU stays stopped: to be frozen for a scan is something else. Its GPUs count."""
    pod, child = node.running()
    pod.allocate(*node.uuids[:2])
    pod.until_has(*node.uuids[:2])
    child.run(f"global held; held = open_device({str(node.nodes[0])!r})")
    os.kill(child.pid, signal.SIGSTOP)
    pod.allocate(generation=2)
    pod.until_has(draining=(node.uuids[0],))
    assert Path(f"/proc/{child.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T"
    os.kill(child.pid, signal.SIGCONT)
    child.run("os.close(held)")
    pod.until_has()
    assert child.probe(*node.nodes) == "----"
