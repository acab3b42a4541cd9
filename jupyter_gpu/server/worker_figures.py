"""Figures of the pod's workers: each is asked how soon it answers and about its GPUs, while somebody looks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.view import Sample, View

from .rules.traffic import Traffic

if TYPE_CHECKING:  # loaded with the first worker, not when a server starts
    from jupyter_gpu.remote.first_process import Seen, WorkerAddress

PERIOD = 10.0
"""Seconds between two questions to a worker, at least."""
PATIENCE = 3.0
"""Seconds for an answer."""
OLD = 3 * PERIOD
"""Seconds after which nobody is shown a load any more."""
_log = logging.getLogger(__name__)


class WorkerFigures:
    """The figures of one server's workers. ``ways`` returns those that can be reached, by id."""

    def __init__(self, ways: Callable[[], Mapping[str, WorkerAddress]]) -> None:
        self.traffic = Traffic()
        self.changed: Callable[[], None] = lambda: None
        """Called when a view would show something else."""
        self._ways = ways
        self._asked = float("-inf")
        """Time of the last questions, on the clock of the event loop."""
        self._told = float("-inf")
        """Time of the last loads."""
        self._task: asyncio.Task[None] | None = None

    def added(self, view: View) -> View:
        """Return ``view`` with what is known of its workers, and ask them soon for more."""
        if not view.workers:
            return view
        self._ask_soon(view)
        return self.traffic.added(view)

    def sampled(self, sample: Sample, view: View) -> Sample:
        """Return ``sample`` with the loads of the workers' GPUs, and ask for newer ones soon."""
        if not view.workers:
            return sample
        self._ask_soon(view)
        old = asyncio.get_running_loop().time() - self._told > OLD
        return sample if old else self.traffic.sampled(sample, view)

    def answered(self, worker: str, seen: Seen | None) -> None:
        """Take over what a worker answered; None: it did not."""
        if self.traffic.measure(worker, None if seen is None else seen.round_trip):
            self.changed()

    async def stop(self) -> None:
        """Ask nothing more."""
        task, self._asked = self._task, float("inf")
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _ask_soon(self, view: View) -> None:
        self.traffic.keep({worker.id for worker in view.workers})
        loop = asyncio.get_running_loop()
        due = self.traffic.asks_now(view) or loop.time() - self._asked >= PERIOD
        if self._task is None and due and (workers := self._ways()):
            self._asked = loop.time()
            self._task = loop.create_task(self._ask_all(workers))

    async def _ask_all(self, workers: Mapping[str, WorkerAddress]) -> None:
        """Ask one after the other: one that does not answer takes one thread."""
        try:
            for worker, address in workers.items():
                await self._ask(worker, address)
        except Exception:  # the next questions come all the same
            _log.exception("The workers could not be asked.")
        finally:
            self._task = None

    async def _ask(self, worker: str, address: WorkerAddress) -> None:
        from jupyter_gpu.remote.first_process import look

        seen = None
        with suppress(GpuError):
            seen = await asyncio.to_thread(look, address, PATIENCE, loads=True)
        news = self.traffic.load(worker, *((seen.loads.gpus, seen.loads.kinds) if seen else ({}, {})))
        self._told = asyncio.get_running_loop().time()
        self.answered(worker, seen)
        if news:
            self.changed()
