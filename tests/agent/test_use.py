"""The node publishes which GPUs of a pod are open, and which its containers can never use."""

import json

import pytest

from jupyter_gpu_node.gpus import simulated
from tests.agent.stage import PATIENCE, Api, Node
from tests.cluster.testbed import ControlPlane, until

pytestmark = [pytest.mark.root, pytest.mark.cluster]


def test_open_gpus_are_published_on_change(node: Node) -> None:
    """Only the one of two attached GPUs that a process has open; nothing is written while nothing changes."""
    pod, child = node.running()
    pod.allocate(*node.uuids[:2])
    pod.until_has(*node.uuids[:2])
    child.run(f"held = open_device({str(node.nodes[1])!r})")

    def told() -> tuple[str, ...] | None:
        return pod.attached.open if pod.attached else None

    until(lambda: told() == (node.uuids[1],), PATIENCE, "the open one to be told")
    version = pod.json()["metadata"]["resourceVersion"]
    before = float(audits(node))
    until(lambda: float(audits(node)) > before + 5, PATIENCE, "some seconds to pass")
    assert pod.json()["metadata"]["resourceVersion"] == version
    node.kill()
    node.start()
    assert told() == (node.uuids[1],), "the next plugin believes it until it has scanned"
    child.run("os.close(held)")
    until(lambda: told() == (), PATIENCE, "that nothing is open")


def audits(node: Node) -> str:
    """Return the number of audits so far."""
    lines = node.get("/metrics").splitlines()
    return next(line.split()[1] for line in lines if line.startswith("jupyter_gpu_audits_total "))


def test_gpu_without_a_device_in_the_container_is_published_and_never_opened(plane: ControlPlane, api: Api) -> None:
    """The container was created without its device, and can be given none."""
    node = Node(plane, api)
    try:
        pod = node.pod()
        entry = {
            "slot": "slot-0000",
            "allocated": 1,
            "devices": [f"/dev/jupyter-gpu/gpu{index}" for index in range(3)],
            "pod": {"uid": pod.uid, "namespace": "default", "name": pod.name},
            "container": "main",
        }
        state = node.folder / "state"
        (state / "simulated" / "health").mkdir(parents=True)
        simulated.unplug(state / "simulated", node.uuids[3], node=node.name)
        (state / "slots.json").write_text(json.dumps({"version": 1, "slots": [entry]}))
        node.start()
        child = pod.spawn()
        pod.allocate(node.uuids[0])
        pod.until_has(node.uuids[0])
        assert pod.attached
        assert pod.attached.lacks == ()
        simulated.set_health(state / "simulated", node.uuids[3], None, node=node.name)
        until(lambda: pod.attached and pod.attached.lacks == (node.uuids[3],), PATIENCE, "the pod's lack to be told")
        pod.allocate(*node.uuids, generation=2)
        pod.until_has(*node.uuids[:3])
        assert pod.attached
        assert pod.attached.observed_generation == 1, "not all of it is done"
        assert child.probe(*node.nodes) == "+++-"
        other = node.pod()
        other.annotate("jupyter-gpu.io/test", "go")
        inside = other.spawn()
        pod.allocate(node.uuids[0], generation=3)
        other.allocate(node.uuids[3])
        other.until_has(node.uuids[3])
        assert inside.probe(*node.nodes) == "---+"
    finally:
        node.close()
