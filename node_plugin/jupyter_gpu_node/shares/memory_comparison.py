"""Looks at the memory of shared GPUs: once a second, what the driver says that processes hold is charged to shares."""

from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.measured_memory import MIB

from .server import ArbiterServer
from .usage_by_process import Reader
from .use_scans import attributed, members
from .watched import Watched

UNKNOWN = (
    "The driver does not say how much memory each process has on GPU %s%s. So limits of memory hold there by what "
    "programs tell, and one that takes it around the gate is not charged for it."
)
_log = logging.getLogger(__name__)


class MemoryLooks:
    """The looks of one node. ``thread`` does what blocks; ``pod_of`` says there which pod a process is of."""

    def __init__(
        self,
        server: ArbiterServer,
        reader: Reader,
        thread: ThreadPoolExecutor,
        pod_of: Callable[[int], str | None],
    ) -> None:
        self._server = server
        self._reader = reader
        self._thread = thread
        self._pod_of = pod_of
        self._unknown: set[str] = set()
        """GPUs of which it was said that the driver does not tell."""

    async def look(self, gpu: str, watched: Watched) -> Mapping[str, int] | None:
        """Charge what processes hold, and return the bytes above each limit that nobody was granted.

        None: there is nothing to look at, as one share without a limit has the GPU, or no program of any has it.
        """
        station = self._server.station(gpu)
        shares = station.desk.shares if station else {}
        limited = len(shares) > 1 or any(one.pool.limit is not None for one in shares.values())
        if station is None or not limited or not (station.processes or watched.users or watched.keepers):
            watched.keepers = {}
            return None
        told = station.told()
        by_pid = await self._reader.memory(gpu)
        by_share: Mapping[str, Mapping[ProcessId, int | None]] = {}
        if by_pid:
            known = {process: pod for pod, process in members(self._server, gpu)}
            work = functools.partial(attributed, watched.pods, by_pid, known, self._pod_of)
            by_share = await asyncio.get_running_loop().run_in_executor(self._thread, work)
        if by_pid is None or any(size is None for some in by_share.values() for size in some.values()):
            self._say_unknown(gpu)
        untold = {}
        for pod in shares.keys() & watched.pods:
            held = {process: size for process, size in by_share.get(pod, {}).items() if size is not None}
            untold[pod] = station.measured(pod, held, watched.penalties.context * MIB, told)
        watched.keepers = {pod: frozenset(some) for pod, some in by_share.items()}
        return untold

    def _say_unknown(self, gpu: str) -> None:
        if gpu not in self._unknown:
            self._unknown.add(gpu)
            _log.warning(UNKNOWN, gpu, f" ({self._reader.note})" if self._reader.note else "")
