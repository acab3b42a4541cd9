"""A GPU that somebody else gives away as well is given to nobody, and who uses it is left alone. What the kubelet tells
is made up here; a real one is asked in ``tests/kubelet/test_shared_node.py``."""

import asyncio
import json

import pytest

from jupyter_gpu_node.kubelet.pod_resources import PodResourcesError
from jupyter_gpu_node.managed_rules import Given
from tests.agent.stage import Node
from tests.agent.test_start import running
from tests.agent.test_tenants import until

pytestmark = [pytest.mark.root, pytest.mark.cluster]


class Told:
    """What the kubelet tells; None: nothing."""

    def __init__(self) -> None:
        self.given: tuple[Given, ...] | None = ()

    async def __call__(self) -> tuple[Given, ...]:
        if self.given is None:
            raise PodResourcesError("It is away.")
        return self.given


async def test_a_gpu_with_two_owners(quiet: Node) -> None:
    """Unhealthy, said once, and granted when it has one owner again; while the kubelet is away nothing changes."""
    told = Told()
    async with running(quiet) as plugin:
        plugin.owners._given = told
        await until(lambda: plugin.inventory.node, "the node")

        def healthy() -> list[bool]:
            return [gpu.healthy for gpu in plugin.inventory.gpus]

        stranger, user = await asyncio.to_thread(quiet.running)
        told.given = (Given("team/other", "nvidia.com/gpu", (quiet.uuids[0],)),)
        await plugin.owners.once()
        assert healthy() == [False, True, True, True]
        assert "team/other as nvidia.com/gpu" in plugin.inventory.gpus[0].health
        pod = quiet.pod()
        child = pod.spawn()
        pod.allocate(*quiet.uuids[:2])
        await asyncio.to_thread(pod.until_has, quiet.uuids[1])
        assert child.probe(*quiet.nodes) == "-+--"
        told.given = None
        await plugin.owners.once()
        assert healthy() == [False, True, True, True]
        await until(lambda: "GpuHasTwoOwners" in quiet.events(), "the event")
        assert plugin.metrics.two_owners._value.get() == 1
        told.given = ()
        await plugin.owners.once()
        await asyncio.to_thread(pod.until_has, *quiet.uuids[:2])
        assert child.probe(*quiet.nodes) == "++--"
        await until(lambda: "GpuHasOneOwner" in quiet.events(), "the event")
        assert plugin.metrics.two_owners._value.get() == 0
        assert user.process.poll() is None
        assert not stranger.has


async def test_who_uses_a_gpu_with_two_owners_is_not_ended(quiet: Node) -> None:
    """Nobody knows whose it is; as soon as it is ours alone again the audit sees to it."""
    told = Told()
    async with running(quiet) as plugin:
        plugin.owners._given = told
        pod = quiet.pod(slot=False)
        user = pod.spawn()
        user.run(f"held = open_device({str(quiet.nodes[0])!r})")
        told.given = (Given(f"default/{pod.name}", "nvidia.com/gpu", (quiet.uuids[0],)),)
        await plugin.owners.once()
        for _ in range(4):
            await plugin.audit.once()
        assert user.process.poll() is None
        told.given = ()
        await plugin.owners.once()
        await plugin.audit.once()
        await until(lambda: user.process.poll() is not None, "its end")


async def test_gpus_of_others_are_not_known(quiet: Node) -> None:
    """They are in no inventory, nobody is given one, and who uses them is left alone."""
    before = quiet.file.read_text()
    quiet.file.write_text(json.dumps({**json.loads(before), "managed": {"indexes": [1, 2]}}))
    try:
        async with running(quiet) as plugin:
            assert [gpu.index for gpu in plugin.inventory.gpus] == [1, 2]
            theirs = quiet.pod(slot=False)
            user = theirs.spawn()
            user.run(f"held = open_device({str(quiet.nodes[0])!r})")
            pod = quiet.pod()
            child = pod.spawn()
            pod.allocate(*quiet.uuids[:2])
            await asyncio.to_thread(pod.until_has, quiet.uuids[1])
            assert child.probe(*quiet.nodes) == "-+--"
            for _ in range(4):
                await plugin.audit.once()
            assert user.process.poll() is None
    finally:
        quiet.file.write_text(before)
