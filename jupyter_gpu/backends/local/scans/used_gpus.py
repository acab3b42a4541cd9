"""Reads which GPUs a pod used since the last look: from turns, the driver's samples, or simulated load.

As a node plugin does (`use_reader`): the driver is asked only about GPUs whose turns say nothing. At the first look at
a GPU nothing is known of the time before, and nothing counts as use.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from jupyter_gpu_node.agent.rules.work import SIMULATED, TurnTotals, used
from jupyter_gpu_node.gpus import simulated_load
from jupyter_gpu_node.gpus.registry import Registry
from jupyter_gpu_node.processes.proc import ProcessInfo

OpenGpus = Mapping[str, tuple[ProcessInfo, ...]]
"""By uuid, the pod's processes that have the GPU open."""
TurnsSoFar = Callable[[Collection[str]], Mapping[str, tuple[int, bool]]]
"""Returns, by uuid, the microseconds of the pod's turns and waits so far, and whether it has only a part of the GPU.

A GPU is missing where its programs take no turns."""


class UsedGpus:
    """The reader of one pod."""

    def __init__(self, registry: Registry, turns: TurnsSoFar) -> None:
        self._registry = registry
        self._turns = turns
        self._totals: Mapping[str, int] = {}
        self._asked: frozenset[str] = frozenset()
        """The GPUs about which the driver was asked at the last look, or could have been."""
        self._load: simulated_load.LoadReading | None = None

    def read(self, opened: OpenGpus, seconds: float) -> frozenset[str]:
        """Return the open GPUs that were used since the last call, ``seconds`` ago, or of which that is not known."""
        simulated = {uuid for uuid in opened if self._registry.seen[uuid].simulated}
        turns = self._read_turns(opened, simulated)
        asked = {uuid for uuid in opened if not ((told := turns.get(uuid)) and told.tells)}
        seen = {**self._simulated(opened, simulated), **self._real(asked - simulated, seconds)}
        return frozenset(uuid for uuid in opened if used(turns.get(uuid), seen.get(uuid, False)))

    def _read_turns(self, opened: Collection[str], simulated: Collection[str]) -> dict[str, TurnTotals]:
        before, told = self._totals, self._turns(opened)
        self._totals = {uuid: now for uuid, (now, _) in told.items()}
        # A program on a simulated GPU need not take turns: it needs no driver, which the gate stands in front of.
        return {
            uuid: TurnTotals(before.get(uuid), now, alone and uuid not in simulated)
            for uuid, (now, alone) in told.items()
        }

    def _real(self, asked: Collection[str], seconds: float) -> dict[str, bool | None]:
        """Ask the driver, which does not say whose the work was; None where it says nothing."""
        before, self._asked = self._asked, frozenset(asked)
        known = self._asked & before
        peaks = self._registry.peaks(known, seconds)
        return {uuid: None if uuid not in peaks else peaks[uuid] > 0 for uuid in known}

    def _simulated(self, opened: OpenGpus, simulated: Collection[str]) -> dict[str, bool | None]:
        """Look which programs computed on a processor, or report a load of their simulated GPU."""
        before, self._load = self._load, simulated_load.read({one for uuid in simulated for one in opened[uuid]})
        busy = simulated_load.busy(before, self._load, SIMULATED)
        loads = self._registry.loads(frozenset(simulated))
        reported = {uuid for uuid, load in loads.items() if load.utilisation}
        return {uuid: uuid in reported or not busy.isdisjoint(opened[uuid]) for uuid in simulated}
