"""Reads which GPUs the pods of a node used since the last look: from turns, the driver, or simulated load.

The driver is asked only about GPUs whose turns say nothing. It keeps samples of some seconds, so bursts between two
looks are seen as well. At the first look at a GPU nothing is known of the time before, and nothing counts as use.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

from jupyter_gpu.model.gpu import NVIDIA
from jupyter_gpu_node.agent.rules.work import SIMULATED, TurnTotals, used
from jupyter_gpu_node.gpus import simulated_load
from jupyter_gpu_node.processes.proc import ProcessInfo
from jupyter_gpu_node.shares.scans.usage_by_process import PeakReader
from jupyter_gpu_node.shares.server.clocks import microseconds

OpenGpus = Mapping[str, Mapping[str, tuple[ProcessInfo, ...]]]
"""By pod and GPU, the pod's processes that have it open."""
TurnsSoFar = Callable[[str, str], tuple[int, bool] | None]
"""Returns, for a GPU and a pod, the microseconds of its turns and waits so far, and whether it has only a part of the
GPU; None: its programs take no turns."""
Share = tuple[str, str]
"""Pod and GPU."""


class PeaksOfVendors:
    """A `PeakReader` for a node that may have GPUs of other vendors beside NVIDIA's. ``others`` asks their source."""

    def __init__(
        self,
        nvidia: PeakReader,
        others: Callable[[Collection[str], float], Mapping[str, int]],
        vendor: Callable[[str], str],
    ) -> None:
        self._nvidia = nvidia
        self._others = others
        self._vendor = vendor

    async def peak(self, gpu: str, begin: int) -> int | None:
        """Return the highest per cent since a moment of the monotonic clock, in microseconds. None: not known now."""
        if self._vendor(gpu) == NVIDIA:
            return await self._nvidia.peak(gpu, begin)
        seconds = (microseconds() - begin) / 1e6
        return (await asyncio.to_thread(self._others, [gpu], seconds)).get(gpu)


class UseReader:
    """The reader of one node. ``driver``: None where the GPUs are simulated."""

    def __init__(self, turns: TurnsSoFar, driver: PeakReader | None) -> None:
        self._turns = turns
        self._driver = driver
        self._totals: dict[Share, int] = {}
        self._asked: dict[str, int] = {}
        self._load: simulated_load.LoadReading | None = None

    async def read(self, opened: OpenGpus) -> dict[str, frozenset[str]]:
        """Return, by pod, the uuids of open GPUs that it used since the last call, or of which that is not known."""
        turns = self._read_turns(opened)
        asked = {share for share in _shares(opened) if not ((told := turns.get(share)) and told.tells)}
        seen = await (self._simulated(opened) if self._driver is None else self._real(self._driver, asked))
        return {
            pod: frozenset(gpu for gpu in gpus if used(turns.get((pod, gpu)), seen.get((pod, gpu), False)))
            for pod, gpus in opened.items()
        }

    def _read_turns(self, opened: OpenGpus) -> dict[Share, TurnTotals]:
        before, self._totals = self._totals, {}
        found = {}
        for pod, gpu in _shares(opened):
            if (told := self._turns(gpu, pod)) is not None:
                self._totals[pod, gpu] = told[0]
                found[pod, gpu] = TurnTotals(before.get((pod, gpu)), *told)
        return found

    async def _real(self, driver: PeakReader, asked: Collection[Share]) -> dict[Share, bool | None]:
        """Ask the driver; where several pods have a GPU open without turns, its work counts for each of them."""
        before, self._asked = self._asked, {}
        found: dict[str, bool | None] = {}
        for gpu in sorted({gpu for _, gpu in asked}):
            self._asked[gpu] = microseconds()
            if gpu in before:
                peak = await driver.peak(gpu, before[gpu])
                found[gpu] = None if peak is None else peak > 0
        return {(pod, gpu): found[gpu] for pod, gpu in asked if gpu in found}

    async def _simulated(self, opened: OpenGpus) -> dict[Share, bool | None]:
        processes = {one for gpus in opened.values() for some in gpus.values() for one in some}
        before, self._load = self._load, await asyncio.to_thread(simulated_load.read, processes)
        busy = simulated_load.busy(before, self._load, SIMULATED)
        return {(pod, gpu): not busy.isdisjoint(opened[pod][gpu]) for pod, gpu in _shares(opened)}


def _shares(opened: OpenGpus) -> list[Share]:
    return [(pod, gpu) for pod, gpus in opened.items() for gpu in gpus]
