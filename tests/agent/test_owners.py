"""A GPU that another plugin gives away as well is given to no pod, and its users are left alone. What the kubelet tells
is made up here; a real one is asked in ``tests/kubelet/test_shared_node.py``."""

import asyncio
import json
import socket

import pytest

from jupyter_gpu_node.gpus import simulated_instances
from jupyter_gpu_node.gpus.rules.managed import Given
from jupyter_gpu_node.holders.rules.rights import HolderKind, Suspect
from jupyter_gpu_node.holders.scanner import HolderScan
from jupyter_gpu_node.kubelet.pod_resources import PodResourcesError
from jupyter_gpu_node.processes import proc
from tests.agent.stage import Node
from tests.agent.test_start import running
from tests.agent.test_tenants import until
from tests.node.devices.test_covered_devices import Silent

pytestmark = [pytest.mark.root, pytest.mark.cluster]


class Told:
    """The answer of the kubelet; None: nothing."""

    def __init__(self) -> None:
        self.given: tuple[Given, ...] | None = ()

    async def __call__(self) -> tuple[Given, ...]:
        if self.given is None:
            raise PodResourcesError("It is away.")
        return self.given


async def test_gpu_with_two_owners_is_unhealthy(quiet: Node) -> None:
    """Reported once, and granted when it has one owner again; while the kubelet is away nothing changes."""
    told = Told()
    async with running(quiet) as plugin:
        plugin.second_owners.given = told
        await until(lambda: plugin.inventory.node, "the node")

        def healthy() -> list[bool]:
            return [gpu.healthy for gpu in plugin.inventory.gpus]

        stranger, user = await asyncio.to_thread(quiet.running)
        told.given = (Given("team/other", "nvidia.com/gpu", (quiet.uuids[0],)),)
        await plugin.second_owners.once()
        assert healthy() == [False, True, True, True]
        assert "team/other as nvidia.com/gpu" in plugin.inventory.gpus[0].health
        pod = quiet.pod()
        child = pod.spawn()
        pod.allocate(*quiet.uuids[:2])
        await asyncio.to_thread(pod.until_has, quiet.uuids[1])
        assert child.probe(*quiet.nodes) == "-+--"
        told.given = None
        await plugin.second_owners.once()
        assert healthy() == [False, True, True, True]
        await until(lambda: "GpuHasTwoOwners" in quiet.events(), "the event")
        assert plugin.metrics.registry.get_sample_value("jupyter_gpu_two_owners") == 1
        told.given = ()
        await plugin.second_owners.once()
        await asyncio.to_thread(pod.until_has, *quiet.uuids[:2])
        assert child.probe(*quiet.nodes) == "++--"
        await until(lambda: "GpuHasOneOwner" in quiet.events(), "the event")
        assert plugin.metrics.registry.get_sample_value("jupyter_gpu_two_owners") == 0
        assert user.process.poll() is None
        assert not stranger.has


async def test_users_of_a_gpu_with_two_owners_are_not_ended(quiet: Node) -> None:
    """Their owner cannot be known; as soon as the GPU is ours alone again, the audit ends them."""
    told = Told()
    async with running(quiet) as plugin:
        plugin.second_owners.given = told
        pod = quiet.pod(slot=False)
        user = pod.spawn()
        user.run(f"held = open_device({str(quiet.nodes[0])!r})")
        told.given = (Given(f"default/{pod.name}", "nvidia.com/gpu", (quiet.uuids[0],)),)
        await plugin.second_owners.once()
        for _ in range(4):
            await plugin.audit.once()
        assert user.process.poll() is None
        told.given = ()
        await plugin.second_owners.once()
        await plugin.audit.once()
        await until(lambda: user.process.poll() is not None, "its end")


async def test_unmanaged_gpus_are_left_alone(quiet: Node) -> None:
    """They are in no inventory, no pod is granted one, and their users are left alone."""
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


def plain(number: int) -> str:
    """Return the name of an instance, as NVIDIA's device plugin gives it."""
    return f"MIG-0f3c1ac5-5c3b-5a0e-9f0a-6a8f4d1e2b{number:02d}"


async def test_instance_makes_its_gpu_a_second_owners(quiet: Node) -> None:
    """Its GPU is known as soon as the driver reports it; until then each may be meant that is not whole."""
    told = Told()
    folder = quiet.folder / "state" / "simulated"
    async with running(quiet) as plugin:
        plugin.second_owners.given = told

        def held() -> list[bool]:
            return [gpu.uuid in plugin.inventory.held_back for gpu in plugin.inventory.gpus]

        try:
            simulated_instances.write(folder, quiet.uuids[2], frozenset())
            simulated_instances.write(folder, quiet.uuids[3], frozenset({plain(3)}))
            told.given = (Given("team/other", "nvidia.com/mig-1g.5gb", (plain(3),)),)
            await plugin.second_owners.once()
            assert held() == [False, False, False, True], "the driver was asked at once"
            assert f"Its instance {plain(3)} was given to pod team/other" in plugin.inventory.gpus[3].health

            told.given = (Given("team/other", "nvidia.com/mig-1g.5gb", (plain(2),)),)
            await plugin.second_owners.once()
            assert held() == [False, False, True, True]
            assert "may have been given to pod team/other" in plugin.inventory.gpus[2].health
            assert plugin.metrics.registry.get_sample_value("jupyter_gpu_two_owners") == 2
            simulated_instances.write(folder, quiet.uuids[2], frozenset({plain(2)}))
            await plugin.second_owners.once()
            assert held() == [False, False, True, False]
            pod = quiet.pod()
            child = pod.spawn()
            pod.allocate(*quiet.uuids)
            await asyncio.to_thread(pod.until_has, *quiet.uuids[:2])
            assert child.probe(*quiet.nodes) == "++--", "nothing in MIG mode, whatever was decided"
            told.given = ()
            for uuid in quiet.uuids:
                simulated_instances.write(folder, uuid, None)
            await plugin.second_owners.once()
            await plugin.inventory.refresh()
            await asyncio.to_thread(pod.until_has, *quiet.uuids)
        finally:
            for uuid in quiet.uuids:
                simulated_instances.write(folder, uuid, None)


async def test_unknown_instance_may_be_of_any_gpu(quiet: Node) -> None:
    """While the driver is silent no GPU is granted, and no user of one is ended."""
    told = Told()
    async with running(quiet) as plugin:
        plugin.second_owners.given = told
        user = quiet.pod(slot=False).spawn()
        user.run(f"held = open_device({str(quiet.nodes[0])!r})")
        plugin.registry.source = Silent()
        told.given = (Given("team/other", "nvidia.com/gpu", (plain(1),)),)
        await plugin.second_owners.once()
        assert plugin.inventory.held_back == set(quiet.uuids)
        for _ in range(4):
            await plugin.audit.once()
        assert user.process.poll() is None
        told.given = (Given("team/other", "nvidia.com/gpu", ("GPU-of-another",)),)
        await plugin.second_owners.once()
        assert plugin.inventory.held_back == set()


async def test_kubelet_is_asked_before_a_process_is_ended(quiet: Node) -> None:
    """A pod that another plugin gave a GPU since the last question keeps it; one that was given none does not."""
    told = Told()
    async with running(quiet) as plugin:
        plugin.second_owners.given = told
        address = plugin.settings.pod_resources_socket
        address.parent.mkdir(parents=True, exist_ok=True)
        with socket.socket(socket.AF_UNIX) as kubelet:
            kubelet.bind(str(address))
            try:
                pods = [quiet.pod(slot=False) for _ in range(2)]
                users = [pod.spawn() for pod in pods]
                for user, path in zip(users, quiet.nodes[:2], strict=True):
                    user.run(f"held = open_device({str(path)!r})")
                told.given = (Given(f"default/{pods[0].name}", "nvidia.com/gpu", (quiet.uuids[0],)),)
                await plugin.audit.once()
                await until(lambda: users[1].process.poll() is not None, "the end of the other")
                for _ in range(4):
                    await plugin.audit.once()
                assert users[0].process.poll() is None
            finally:
                address.unlink()


async def test_findings_about_a_gpu_with_two_owners_do_not_count(quiet: Node) -> None:
    """A search may have begun before the other owner was known; when only we have the GPU again it counts."""
    told = Told()
    async with running(quiet) as plugin:
        plugin.second_owners.given = told
        user = quiet.pod(slot=False).spawn()
        start = proc.process_start_time(user.pid)
        assert start is not None
        suspect = Suspect(user.pid, start, "python", escaped=True)
        plugin.audit.searched["a pod"] = (HolderScan({}), [(quiet.uuids[0], suspect, HolderKind.INTRUDER)])
        told.given = (Given("team/other", "nvidia.com/gpu", (quiet.uuids[0],)),)
        await plugin.second_owners.once()
        await plugin.audit.once()
        assert user.process.poll() is None
        assert plugin.inventory.held == {}
        told.given = ()
        await plugin.second_owners.once()
        await plugin.audit.once()
        await until(lambda: user.process.poll() is not None, "its end")
