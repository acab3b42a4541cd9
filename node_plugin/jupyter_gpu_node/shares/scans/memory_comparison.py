"""Charges shares, once a second, for the GPU memory that the driver says their processes hold."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.measured_memory import MIB
from jupyter_gpu_node.shares.rules.violations.events import MemoryScanned

from .share_processes import attributed, connected_processes
from .usage_by_process import UsageReader
from .watched import WatchedGpu, WatchedNode

UNKNOWN = (
    "The driver does not say how much memory each process has on GPU %s%s. So limits of memory hold there by what "
    "programs tell, and one that takes it around the gate is not charged for it."
)
_log = logging.getLogger(__name__)


class MemoryComparison:
    """Compares the driver's figures with those of the shares on the GPUs of one node."""

    def __init__(self, node: WatchedNode, reader: UsageReader) -> None:
        self._node = node
        self._reader = reader
        self._unknown: set[str] = set()
        """GPUs for which it was logged that the driver does not report memory."""

    async def run(self, pause: float) -> None:
        """Compare the memory of the GPUs for ever, one after the other, at most once in each pause."""
        while True:
            await asyncio.sleep(pause)
            for gpu, watched in list(self._node.gpus.items()):
                try:
                    untold = await self.compare(gpu, watched)
                except Exception:  # such as a reader that fails: the next comparison may succeed
                    _log.exception("The memory of programs on %s could not be compared", gpu)
                    continue
                if untold is not None and (
                    any(untold.values()) or any(one.memory_scans for one in watched.state.values())
                ):
                    self._node.on_event(gpu, MemoryScanned(untold))

    async def compare(self, gpu: str, watched: WatchedGpu) -> Mapping[str, int] | None:
        """Charge what processes hold, and return, by share, the bytes above its limit that were never granted.

        None: there is nothing to compare: one share without a limit has the GPU, or no program uses it.
        """
        gpu_server = self._node.server.gpu_server(gpu)
        shares = gpu_server.manager.shares if gpu_server else {}
        limited = len(shares) > 1 or any(one.pool.limit is not None for one in shares.values())
        if gpu_server is None or not limited or not (gpu_server.processes or watched.users or watched.memory_holders):
            watched.memory_holders = {}
            return None
        reported = gpu_server.reported()
        by_pid = await self._reader.memory(gpu)
        by_share: Mapping[str, Mapping[ProcessId, int | None]] = {}
        if by_pid:
            known = {process: pod for pod, process in connected_processes(self._node.server, gpu)}
            by_share = await self._node.worker.run(attributed, watched.pods, by_pid, known, self._node.processes.pod_of)
        if by_pid is None or any(size is None for some in by_share.values() for size in some.values()):
            self._say_unknown(gpu)
        untold = {}
        for pod in shares.keys() & watched.pods:
            held = {process: size for process, size in by_share.get(pod, {}).items() if size is not None}
            untold[pod] = gpu_server.measured(pod, held, watched.penalties.context * MIB, reported)
        watched.memory_holders = {pod: frozenset(some) for pod, some in by_share.items()}
        return untold

    def _say_unknown(self, gpu: str) -> None:
        if gpu not in self._unknown:
            self._unknown.add(gpu)
            _log.warning(UNKNOWN, gpu, f" ({self._reader.note})" if self._reader.note else "")
