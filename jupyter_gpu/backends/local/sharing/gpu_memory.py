"""The memory of this machine's GPUs: it takes a process that asks the driver, so only where it matters."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping

from jupyter_gpu_node.gpus import simulated as simulated_gpus
from jupyter_gpu_node.gpus.nvml import NvmlSource

AGAIN = 60.0
"""Seconds after which a driver that did not tell of some GPU is asked again."""
DEADLINE = 5.0
"""Seconds that it has to answer."""


class GpuMemory:
    """The memory of GPUs, in bytes by uuid.

    ``real``: whether this machine has a driver; simulated GPUs are all alike.
    """

    def __init__(self, real: bool, ask: Callable[[], Mapping[str, int]] | None = None) -> None:
        self._ask = ask or (_ask if real else dict)
        self._asked = float("-inf")
        self.known: Mapping[str, int] = {}

    def learn(self, gpus: Collection[str], now: float | None = None) -> None:
        """Learn the memory of these as well, in a thread; what cannot be told now is asked for again later."""
        now = time.monotonic() if now is None else now
        if all(gpu in self.known for gpu in gpus) or now < self._asked + AGAIN:
            return
        self._asked = now
        simulated = {simulated_gpus.uuid_of(index): simulated_gpus.MEMORY for index in range(simulated_gpus.MAX_COUNT)}
        self.known = {**self.known, **simulated, **self._ask()}


def _ask() -> Mapping[str, int]:
    source = NvmlSource(deadline=DEADLINE, first_deadline=DEADLINE, bare=lambda: True)
    try:
        return {gpu.uuid: gpu.memory for gpu in source.inventory() if gpu.memory}
    finally:
        source.close()
