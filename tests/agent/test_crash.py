"""The plugin dies at any point: rules hold meanwhile, and the next one ends where the first was going."""

import pytest

from jupyter_gpu_node.agent import agent
from jupyter_gpu_node.devices import bpf
from jupyter_gpu_node.devices.pins import Pins
from tests.agent.stage import COUNT, Node, Pod
from tests.cluster.testbed import until
from tests.node.conftest import Child

pytestmark = [pytest.mark.root, pytest.mark.cluster]

ELSEWHERE = ("agent:closed", "agent:said")  # these need a kubelet, and a pod that speaks: test_start, test_peers
DURING = [point for point in agent.POINTS if point not in ELSEWHERE]


@pytest.mark.parametrize("point", [*DURING, "only then"])
def test_resize_survives_a_kill_at_every_point(node: Node, point: str) -> None:
    """One GPU goes, one stays, one comes; never is one open that was not granted, and all of it comes about."""
    pod, child = node.running()
    pod.allocate(node.uuids[0], node.uuids[1])
    pod.until_has(node.uuids[0], node.uuids[1])
    node.stop()
    pod.allocate(node.uuids[1], node.uuids[2], generation=2)
    if point == "only then":
        node.start()
        pod.until_has(node.uuids[1], node.uuids[2])
        node.kill()
    else:
        node.start(point, wait=False)
        node.died()
    until(lambda: not frozen(pod), what="the pod to run although nobody is there")
    assert child.probe(*node.nodes) in ("++--", "-++-")
    other = node.pod()  # while the plugin is away
    node.start()
    pod.until_has(node.uuids[1], node.uuids[2])
    # where that was recorded before, the first scan may still go on, and the rules be about to be replaced
    until(lambda: not frozen(pod), what="the pod to run")
    until(lambda: child.probe(*node.nodes) == "-++-", what="what was given to be open")
    until(lambda: len([name for name in node.pins() if name.startswith(pod.uid)]) == 1, what="one pin to be left")
    late = other.spawn()
    until(lambda: late.probe(*node.nodes) == "-" * COUNT, what="the other pod to be closed")


def frozen(pod: Pod) -> bool:
    return "frozen 1" in (pod.group / "cgroup.events").read_text()


def test_unrecorded_gpu_is_not_granted_to_another_pod(node: Node) -> None:
    """The rules were in force, `attached` did not say so, and the scheduler granted the GPU to another pod."""
    pod, child = node.running()
    node.stop()
    pod.allocate(node.uuids[0])
    node.start("agent:rules", wait=False)
    node.died()
    assert child.probe(*node.nodes) == "+---"
    child.run(f"global held; held = open_device({str(node.nodes[0])!r})")
    pod.allocate(generation=2)
    other = node.pod()
    twin = other.spawn()
    other.allocate(node.uuids[0])
    node.start()
    pod.until_has(draining=(node.uuids[0],))
    assert child.probe(*node.nodes) == "----"
    until(lambda: twin.probe(*node.nodes) == "----", what="the other pod to be closed")
    child.run("os.close(held)")
    other.until_has(node.uuids[0])
    assert twin.probe(*node.nodes) == "+---"


def test_dead_plugin_opens_nothing(node: Node) -> None:
    """Killed: what was granted stays, what was not stays closed, and the API server's word changes nothing."""
    pod, child = node.running()
    pod.allocate(node.uuids[3])
    pod.until_has(node.uuids[3])
    node.kill()
    pod.allocate(*node.uuids, generation=2)
    assert child.probe(*node.nodes) == "---+"
    node.start()
    pod.until_has(*node.uuids)


def test_pins_of_removed_pods_are_removed(node: Node) -> None:
    """Pods that ended while the plugin was dead leave nothing behind."""
    pod, _ = node.running()
    node.kill()
    pod.remove_group()
    pod.delete()
    assert any(name.startswith(pod.uid) for name in node.pins())
    node.start()
    until(lambda: not any(name.startswith(pod.uid) for name in node.pins()), what="its pins to be removed")


def test_pod_without_its_pin_is_guarded_anew(node: Node) -> None:
    """The bpffs was emptied: nothing opens, and another program is put beside the one that is lost."""
    pod, child = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    node.kill()
    Pins(node.bpffs / "jupyter-gpu").discard(pod.uid)
    assert child.probe(*node.nodes) == "+---"
    node.start()
    until(lambda: len(bpf.attached(pod.group)) == 2, what="a second program")
    until(lambda: child.probe(*node.nodes) == "+---", what="what was given to be open again")
    pod.allocate(node.uuids[0], node.uuids[1], generation=2)
    pod.until_has(*node.uuids[:2])
    assert child.probe(*node.nodes) == "+---"  # the lost program has its say until the pod ends


def test_child_process_is_in_the_pod(node: Node) -> None:
    """A process that was started by one in the pod can open the same GPUs."""
    pod, child = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    inner: Child = pod.spawn()
    assert inner.probe(*node.nodes) == child.probe(*node.nodes) == "+---"
