"""A node says how much of its CPU, memory and disk is in use."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.kube import Kube, kubeconfig
from jupyter_gpu.model.node_use import USE, decode_use
from jupyter_gpu_node.agent.inventory.host_use import HostFiles, HostUses
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.inventory.own_gpus import OwnGpus
from jupyter_gpu_node.gpus import simulated
from jupyter_gpu_node.gpus.registry import Registry
from tests.agent.stage import FIRST_MINOR, PATIENCE, Node

pytestmark = [pytest.mark.root, pytest.mark.cluster]
WINDOW = 0.3


@contextlib.asynccontextmanager
async def following(node: Node, folder: Path) -> AsyncIterator[tuple[Kube, Inventory]]:
    """The inventory of a node, which knows its Node."""
    gpus = simulated.SimulatedGpus(folder / "gpus", 1, node=node.name, devices=node.devices, first=FIRST_MINOR)
    async with Kube(kubeconfig(node.plane.kubeconfig), deadline=10) as kube:
        inventory = Inventory(Registry(lambda: gpus), kube, node.name, 0.2, own=OwnGpus(folder / "gpus.json"))
        await inventory.begin()
        task = asyncio.create_task(inventory.run())
        try:
            yield kube, inventory
        finally:
            task.cancel()
            await asyncio.wait([task])
            inventory.close()


@contextlib.asynccontextmanager
async def at_work(*runs: Any) -> AsyncIterator[None]:
    tasks = [asyncio.create_task(one) for one in runs]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def work(stat: Path, busy: Callable[[], int]) -> None:
    """Have the machine's CPU so many eighths busy."""
    ticks = [0, 0]
    while True:
        ticks = [ticks[0] + busy(), ticks[1] + 8 - busy()]
        stat.with_name("new").write_text(f"cpu {ticks[0]} 0 0 {ticks[1]} 0 0 0 0\n")
        stat.with_name("new").replace(stat)
        await asyncio.sleep(0.01)


async def until(node: Node, wanted: tuple[int, int] | None) -> None:
    """Wait until the Node says so of CPU and memory, or has no such annotation."""
    async with asyncio.timeout(PATIENCE):
        while True:
            text = (await asyncio.to_thread(lambda: node.json))["metadata"].get("annotations", {}).get(USE)
            use = decode_use(text) if text else None
            if (use and (use.cpu, use.memory)) == wanted:
                return
            await asyncio.sleep(0.05)


async def test_node_says_how_much_is_in_use(quiet: Node, tmp_path: Path) -> None:
    """A steady use is written once, then another; none once it is switched off. The inventory stays as it is."""
    (tmp_path / "meminfo").write_text("MemTotal: 1000 kB\nMemAvailable: 250 kB\n")
    files, busy = HostFiles(tmp_path, tmp_path), 2
    async with following(quiet, tmp_path) as (kube, inventory), at_work(work(tmp_path / "stat", lambda: busy)):
        uses = HostUses(kube, quiet.name, lambda: inventory.node, files, WINDOW)
        async with at_work(uses.run()):
            await until(quiet, (2, 6))
            await asyncio.sleep(3 * WINDOW)
            assert uses.writes == 1
            busy = 7
            await until(quiet, (7, 6))
            assert uses.writes <= 3, "once on the way at most"
        assert len(await asyncio.to_thread(lambda: quiet.inventory)) == 1
        off = HostUses(kube, quiet.name, lambda: inventory.node, files, 0)
        async with at_work(off.run()):
            await until(quiet, None)
        assert len(await asyncio.to_thread(lambda: quiet.inventory)) == 1


async def test_unknown_node_is_not_written(quiet: Node, tmp_path: Path) -> None:
    """Nothing is measured for it."""
    async with Kube(kubeconfig(quiet.plane.kubeconfig), deadline=10) as kube:
        uses = HostUses(kube, quiet.name, lambda: None, HostFiles(tmp_path, tmp_path), WINDOW)
        await uses.once()
        assert uses.writes == 0
        gone = HostUses(kube, "gone", lambda: {"metadata": {"annotations": {USE: "{}"}}}, HostFiles(tmp_path), 0)
        await gone.once()
        assert gone.writes == 0, "a write that fails is tried again later"
