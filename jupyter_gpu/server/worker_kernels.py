"""The kernels that notebooks of this server have in the workers of its pod: each ends with its notebook's process.

A process that ends by itself ends its kernels there. Of one that is killed the server hears at once; nobody else would
end them for minutes, with their GPUs open. The workers know whose their kernels are. So a server that starts anew asks
each worker once, and nothing has to be written down. A process that lives keeps its kernels, whatever became of its
connections.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from jupyter_gpu.backends.base import PodWorkers
from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.reservation import ReservationOwner

from .pairing_keys import PairingKeys
from .reservation_owners import OwnerWatcher
from .worker_figures import WorkerFigures

if TYPE_CHECKING:  # loaded with the first worker, not when a server starts
    from jupyter_gpu.remote.first_process import WorkerAddress

PATIENCE = 5.0
"""Seconds for an answer of a worker."""
FIRST_PAUSE, LAST_PAUSE = 0.2, 10.0
"""Seconds until a worker that did not answer is asked again: it may not know the key of this server yet."""
LAST = 2.0
"""Seconds for all that when the server ends."""
_log = logging.getLogger(__name__)


class WorkerKernels:
    """The kernels in the workers of one server's pod, and the keys to them. ``owners`` is used by nobody else."""

    def __init__(self, workers: PodWorkers, owners: OwnerWatcher) -> None:
        self._event = asyncio.Event()
        self._workers = workers
        self._keys = PairingKeys(workers, self._event.set)
        self._owners = owners
        self.figures = WorkerFigures(self._addresses)
        """The figures of the workers, for views and samples."""
        self._living: set[ReservationOwner] = set()
        self._asked: set[str] = set()
        """Public keys of the workers whose kernels are those of living processes, as far as is known."""
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def ways(self, owner: ReservationOwner | None = None) -> dict[str, Any]:
        """Return the ways to the workers, for a process whose kernels end with it.

        Raises `InvalidRequest` if its end could not be noticed.
        """
        if owner is not None:
            await self._watch(owner)
        return self._keys.ways()

    async def shipped(self, owner: ReservationOwner, shipped: Mapping[str, int]) -> None:
        """Take over what a process says that it shipped to each worker. Raises `InvalidRequest`."""
        await self._watch(owner)
        service = self._workers.service
        workers = {worker.id for worker in service.workers} if service else set()
        if owner in self._living and self.figures.traffic.tell(owner, shipped, workers):
            self.figures.changed()

    async def stop(self) -> None:
        """End the kernels of what has ended by now, and no more: another server begins where this one ends."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.figures.stop()
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST):
                await self._end_all()
        self._owners.watch((), lambda _: None)
        await self._keys.stop()

    async def _watch(self, owner: ReservationOwner) -> None:
        """Hear of the end of a process. Raises `InvalidRequest` if it has ended."""
        if owner in self._living:
            return
        self._living.add(owner)  # before the check, during which the others may be watched anew
        try:
            await self._owners.check(owner)
        except BaseException:
            self._living.discard(owner)
            raise
        self._owners.watch(self._living, self._on_end)

    def _on_end(self, owner: ReservationOwner) -> None:
        self._living.discard(owner)
        self._owners.watch(self._living, self._on_end)
        self.figures.traffic.end(owner)
        self._asked.clear()
        self._event.set()

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(pause if self._unasked() else None):
                    await self._event.wait()
                    pause = FIRST_PAUSE
            self._event.clear()
            await self._end_all()
            pause = min(2 * pause, LAST_PAUSE)

    async def _end_all(self) -> None:
        for worker, address in self._unasked().items():
            await self._end_kernels(worker, address)

    def _addresses(self) -> dict[str, WorkerAddress]:
        ways = self._keys.ways()
        if not ways["workers"]:
            return {}
        from jupyter_gpu.remote.first_process import read_ways

        return read_ways(ways)

    def _unasked(self) -> dict[str, WorkerAddress]:
        return {worker: address for worker, address in self._addresses().items() if address.key not in self._asked}

    async def _end_kernels(self, worker: str, address: WorkerAddress) -> None:
        """End the kernels in a worker whose processes have ended; it is asked again if that fails."""
        from jupyter_gpu.remote.first_process import ask, look
        from jupyter_gpu.remote.rules.control import Kill

        self._asked.add(address.key)  # before: a process may end meanwhile
        try:
            seen = await asyncio.to_thread(look, address, PATIENCE)
            self.figures.answered(worker, seen)
            for kernel, owner in seen.running.kernels:
                try:
                    await self._watch(owner)
                except InvalidRequest:
                    _log.info("Process %d ended: its kernel in the worker on %s ends.", owner.pid, address.where)
                    await asyncio.to_thread(ask, address, Kill(kernel), PATIENCE)
        except Exception as error:  # nothing of it ends this task
            _log.info("The kernels in the worker on %s cannot be looked at now: %s", address.where, error)
            self._asked.discard(address.key)
