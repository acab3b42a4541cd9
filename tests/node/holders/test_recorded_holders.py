"""Processes for which a driver keeps a GPU though they have closed its device: they are found like all others."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.holders import scanner
from jupyter_gpu_node.holders.scanner import HolderScan, HolderScanner
from tests.node.conftest import Child

GPU = Gpu("GPU-1", 0, "m", 1, device=Device(226, 500))
OTHER = Gpu("GPU-2", 1, "m", 1, device=Device(226, 501))
NOBODY = 2**22 + 1
"""No process: the largest pid is 2**22."""


def test_recorded_process_holds_the_gpu(spawn: Callable[..., Child]) -> None:
    """Only the GPU of its record; a process that has ended holds nothing. No descriptor shows it."""
    child = spawn()
    asked: list[set[str]] = []

    def recorded(uuids: Collection[str]) -> Mapping[str, Collection[int]]:
        asked.append(set(uuids))
        return {"GPU-1": {child.pid, NOBODY}}

    def check(found: HolderScan) -> None:
        assert {uuid: [one.pid for one in some] for uuid, some in found.holders.items()} == {
            "GPU-1": [child.pid],
            "GPU-2": [],
        }
        assert found.evidence == {}

    gpus = {gpu.uuid: gpu for gpu in (GPU, OTHER)}
    check(scanner.scan_holders(gpus.values(), {}, {}, recorded=recorded))
    check(scanner.search_pod("u", gpus.values(), None, {}, recorded=recorded))

    async def through_the_scanner() -> None:
        made = HolderScanner(recorded=recorded)
        check(await made.scan(gpus))
        check(await made.search("u", gpus, None))
        made.close()

    asyncio.run(through_the_scanner())
    assert asked == [{"GPU-1", "GPU-2"}] * 4
