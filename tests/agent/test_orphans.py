"""Leftovers of pods that ended while no plugin ran are found again, and removed."""

import asyncio
from pathlib import Path

import pytest

from jupyter_gpu.kube import Kube, kubeconfig
from jupyter_gpu.model.network import network_of, speed_of
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.inventory.own_gpus import OwnGpus
from jupyter_gpu_node.agent.inventory.rules import uplink_rate
from jupyter_gpu_node.agent.inventory.uplink import Uplink
from jupyter_gpu_node.devices import bpf
from jupyter_gpu_node.devices.rules.device_program import compile as compile_rules
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from jupyter_gpu_node.gpus import simulated
from jupyter_gpu_node.gpus.registry import Registry
from tests.agent.stage import FIRST_MINOR, PATIENCE, Node
from tests.agent.test_start import SLOT, ask, ref, running
from tests.cluster.testbed import until
from tests.node.agent.test_uplink import DEVICES, HEAD, route

pytestmark = [pytest.mark.root, pytest.mark.cluster]
WORK = """
until = time.process_time() + 2
while time.process_time() < until: pass
"""


def test_pod_that_ended_without_the_plugin_is_cleaned_up(quiet: Node) -> None:
    """Its program went with its group; its pins are removed, its GPU is free, and the metric counts it."""
    quiet.start()
    pod, _ = quiet.running()
    pod.allocate(quiet.uuids[0])
    pod.until_has(quiet.uuids[0])
    quiet.kill()
    pod.remove_group()
    pod.delete()
    assert quiet.pins() != []
    quiet.start()
    until(lambda: quiet.pins() == [], PATIENCE, "its pins to be removed")
    until(lambda: 'jupyter_gpu_orphans_total{kind="program"} 1.0' in quiet.get("/metrics"), PATIENCE, "the figure")
    other, child = quiet.running()
    other.allocate(quiet.uuids[0])
    other.until_has(quiet.uuids[0])
    assert child.probe(*quiet.nodes) == "+---"


async def test_program_known_by_its_pin_alone_is_managed(quiet: Node) -> None:
    """Its pod is gone and its removal failed: it is managed at the second sweep, not at the first."""
    async with running(quiet) as plugin:
        pins = plugin.tools.guarding.pins
        uid = "0000-left-over"
        assert pins.directory is not None
        pins.directory.mkdir(mode=0o700, exist_ok=True)
        program = bpf.load(compile_rules(DeviceRules.closed(plugin.inventory.devices)), "test")
        pins.put(uid, 1, program)
        program.close()
        await plugin.agent.sweep()
        assert uid in pins.uids()
        assert uid not in plugin.agent.managed
        await plugin.agent.sweep()
        async with asyncio.timeout(PATIENCE):
            while uid in pins.uids():
                await asyncio.sleep(0.02)


async def test_simulated_load_is_that_of_the_pods_processes(quiet: Node) -> None:
    """A pod sees what its own processes do with it; a GPU that is not open does nothing."""
    pod = quiet.pod()
    child = pod.spawn()
    async with running(quiet) as plugin:
        await plugin.agent.before_start(ref(pod), "main", SLOT)
        pod.allocate(quiet.uuids[0], quiet.uuids[1])
        await asyncio.to_thread(pod.until_has, quiet.uuids[0], quiet.uuids[1])
        child.run(f"global held; held = open_device({str(quiet.nodes[0])!r})")
        path = plugin.settings.slot_directory(SLOT) / "node.sock"

        async def busy() -> bool:
            (sample,) = await ask(path, {"get": "sample"})
            loads = sample["loads"]
            assert set(loads) == {quiet.uuids[0], quiet.uuids[1]}
            idle = loads[quiet.uuids[1]]
            assert (idle["utilisation"], idle["memory"]) == (0.0, 0)
            assert idle["temperature"] > 0
            assert idle["power"] > 0
            assert 0 < loads[quiet.uuids[0]]["memory"] <= simulated.MEMORY
            return bool(0 < loads[quiet.uuids[0]]["utilisation"] <= 100)

        async with asyncio.timeout(PATIENCE):
            await busy()
            work = asyncio.create_task(asyncio.to_thread(child.run, WORK))
            while not await busy():
                await asyncio.sleep(0.1)
            await work
            while await busy():
                await asyncio.sleep(0.1)


async def test_node_publishes_the_load_of_its_uplink(
    quiet: Node, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In its inventory; a steady load is written once, and one that cannot be measured any more is left out."""
    monkeypatch.setattr(uplink_rate, "SECONDS", 0.2)
    devices, speed = tmp_path / "net" / "dev", tmp_path / "root" / "sys" / "class" / "net" / "eth0" / "speed"
    for path in (devices, speed):
        path.parent.mkdir(parents=True)
    (tmp_path / "net" / "route").write_text(HEAD + route("eth0", 0))
    devices.write_text(DEVICES.format(received=0, sent=0))
    speed.write_text("1000")
    gpus = simulated.SimulatedGpus(tmp_path / "gpus", 1, node=quiet.name, devices=quiet.devices, first=FIRST_MINOR)
    async with Kube(kubeconfig(quiet.plane.kubeconfig), deadline=10) as kube:
        inventory = Inventory(
            Registry(lambda: gpus), kube, quiet.name, 0.2, Uplink(tmp_path), own=OwnGpus(tmp_path / "gpus.json")
        )
        await inventory.begin()
        task = asyncio.create_task(inventory.run())
        try:
            await told(quiet, 0.0)
            assert speed_of(quiet.inventory) == 1000
            traffic = asyncio.create_task(_transfer(devices))
            await told(quiet, 1.0)
            traffic.cancel()
            await told(quiet, 0.0)
            writes = inventory.writes
            await asyncio.sleep(1)  # five times what it takes to measure
            assert inventory.writes == writes
            speed.write_text("-1")
            await told(quiet, None)
            assert speed_of(quiet.inventory) is None
        finally:
            task.cancel()
            await asyncio.wait([task])
            inventory.close()


async def test_node_says_whether_it_enforces_memory(quiet: Node, tmp_path: Path) -> None:
    """So that decisions record the memory of shares; no longer once new containers get no gate."""
    enforced = True
    gpus = simulated.SimulatedGpus(tmp_path / "gpus", 1, node=quiet.name, devices=quiet.devices, first=FIRST_MINOR)
    async with Kube(kubeconfig(quiet.plane.kubeconfig), deadline=10) as kube:
        registry, own = Registry(lambda: gpus), OwnGpus(tmp_path / "gpus.json")
        inventory = Inventory(registry, kube, quiet.name, 0.05, limits=lambda: enforced, own=own)
        await inventory.begin()
        task = asyncio.create_task(inventory.run())
        try:
            for enforced in (True, False):
                async with asyncio.timeout(PATIENCE):
                    while [gpu.gate for gpu in await asyncio.to_thread(lambda: quiet.inventory)] != [enforced]:
                        await asyncio.sleep(0.05)
        finally:
            task.cancel()
            await asyncio.wait([task])
            inventory.close()


async def _transfer(devices: Path) -> None:
    """As much as possible, until cancelled."""
    count = 0
    while True:
        count += 10**12
        devices.with_name("new").write_text(DEVICES.format(received=count, sent=0))
        devices.with_name("new").replace(devices)
        await asyncio.sleep(0.02)


async def told(node: Node, use: float | None) -> None:
    """Until the node's inventory tells that."""
    async with asyncio.timeout(PATIENCE):
        while not (found := await asyncio.to_thread(lambda: node.inventory)) or network_of(found) != use:
            await asyncio.sleep(0.05)
