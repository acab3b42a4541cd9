"""The slots that the whole plugin offers to the kubelet: only those that a container could use."""

import asyncio
import shutil
from collections.abc import Iterator

import pytest

from jupyter_gpu_node.gpus import simulated
from tests.agent.stage import Api, Node
from tests.cluster.testbed import ControlPlane
from tests.kubelet.stand_in import Kubelet, Plugin, running, until

pytestmark = [pytest.mark.root, pytest.mark.cluster]


@pytest.fixture
def bare(plane: ControlPlane, api: Api) -> Iterator[Node]:
    """A node whose plugin does not run yet, with a directory that the kubelet makes."""
    made = Node(plane, api)
    shutil.rmtree(made.folder / "kubelet")
    try:
        yield made
    finally:
        made.close()


def unplug(node: Node) -> None:
    """The driver of this node is not up."""
    folder = node.folder / "state" / "simulated"
    (folder / "health").mkdir(parents=True, exist_ok=True)
    for uuid in node.uuids:
        simulated.unplug(folder, uuid, node=node.name)


def plug(node: Node) -> None:
    """It is up."""
    for uuid in node.uuids:
        simulated.set_health(node.folder / "state" / "simulated", uuid, None, node=node.name)


async def offered(kubelet: Kubelet, health: str) -> Plugin:
    """Once all slots are so."""

    def so() -> Plugin | None:
        found = kubelet.current
        return found if found and set(found.health.values()) == {health} else None

    found: Plugin = await until(so, f"all slots to be {health}")
    return found


async def test_no_slots_until_a_gpu_was_seen(bare: Node) -> None:
    """The reason is an Event, and the node is ready all the same; slots come and go with the driver."""
    unplug(bare)
    async with running(bare.folder / "kubelet") as kubelet:
        await asyncio.to_thread(bare.start)
        plugin = await offered(kubelet, "Unhealthy")
        assert plugin.messages == 1, "never offered, not even for a moment"
        await until(lambda: bare.get("/readyz") == "ok", "the plugin to be ready")
        assert "jupyter_gpu_slots_offered 0.0" in bare.get("/metrics")
        await until(lambda: "NoGpus" in bare.events(), "the node's event")
        assert bare.inventory == ()
        plug(bare)
        await offered(kubelet, "Healthy")
        await until(lambda: "GpusFound" in bare.events(), "the node's event")
        assert "jupyter_gpu_slots_offered 1.0" in bare.get("/metrics")
        await kubelet.allocate("slot-0001")
        unplug(bare)
        await offered(kubelet, "Unhealthy")
        plug(bare)
        await offered(kubelet, "Healthy")
        assert kubelet.registrations == 1


async def test_no_slots_while_the_device_of_a_gpu_is_missing(bare: Node) -> None:
    """A container that is created now would never see it."""
    async with running(bare.folder / "kubelet") as kubelet:
        await asyncio.to_thread(bare.start)
        await offered(kubelet, "Healthy")
        device = bare.folder / "state" / "devices"
        hidden = device.with_name("hidden")
        device.rename(hidden)
        await offered(kubelet, "Unhealthy")
        hidden.rename(device)
        await offered(kubelet, "Healthy")
