"""The inventory that a node publishes, also when a GPU breaks."""

import pytest

from jupyter_gpu.model.annotations import INVENTORY, Reason
from jupyter_gpu_node.agent.inventory.rules.annotation import COUNT, MEMORY, MODEL
from jupyter_gpu_node.gpus import simulated
from tests.agent.stage import FIRST_MINOR, Node
from tests.cluster.testbed import until

pytestmark = [pytest.mark.root, pytest.mark.cluster]


def labels(node: Node) -> dict[str, str]:
    found = node.json["metadata"].get("labels") or {}
    return {key: found[key] for key in (MODEL, COUNT, MEMORY) if key in found}


def test_node_publishes_its_gpus(node: Node) -> None:
    """Annotation and labels, by one patch of the node's status."""
    until(lambda: node.inventory, what="the inventory")
    assert [gpu.uuid for gpu in node.inventory] == list(node.uuids)
    assert [str(gpu.device) for gpu in node.inventory] == [f"4:{FIRST_MINOR + number}" for number in range(4)]
    assert labels(node) == {MODEL: "Simulated-GPU", COUNT: "4", MEMORY: str(simulated.MEMORY // 2**20)}


def test_removed_annotation_is_written_again(node: Node) -> None:
    """The annotation is the present state, not what was once written."""
    until(lambda: node.inventory, what="the inventory")
    body = {"metadata": {"annotations": {INVENTORY: None}, "labels": {COUNT: "99"}}}
    node.api.run(node.api.kube.patch(f"/api/v1/nodes/{node.name}", body))
    until(lambda: node.inventory and labels(node)[COUNT] == "4", what="the inventory again")


def test_unhealthy_gpu_is_published_and_recovers(node: Node) -> None:
    """In the inventory and in `attached`; the pod keeps it until the scheduler decides."""
    pod, child = node.running()
    pod.allocate(node.uuids[0])
    pod.until_has(node.uuids[0])
    state = node.folder / "state" / "simulated"
    simulated.set_health(state, node.uuids[0], "It is on fire.", node=node.name)
    try:
        until(lambda: not node.inventory[0].healthy, what="the inventory to tell")
        until(lambda: pod.attached and pod.attached.reason is Reason.UNHEALTHY, what="attached to tell")
        assert child.probe(*node.nodes) == "+---"
    finally:
        simulated.set_health(state, node.uuids[0], None, node=node.name)
    until(lambda: node.inventory[0].healthy, what="the inventory to tell")
    until(lambda: pod.attached and pod.attached.reason is None, what="attached to tell")


def test_unplugged_gpu_stays_denied(node: Node) -> None:
    """It vanishes from the inventory, stays denied to pods without it, and comes back."""
    pod, child = node.running()
    state = node.folder / "state" / "simulated"
    simulated.unplug(state, node.uuids[3], node=node.name)
    try:
        until(lambda: len(node.inventory) == 3, what="the inventory to tell")
        until(lambda: labels(node)[COUNT] == "3", what="the labels to tell")
        pod.allocate(node.uuids[0])
        pod.until_has(node.uuids[0])
        assert child.probe(*node.nodes) == "+---"
    finally:
        simulated.set_health(state, node.uuids[3], None, node=node.name)
    until(lambda: len(node.inventory) == 4, what="the inventory to tell")
