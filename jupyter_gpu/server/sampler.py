"""Samples of the GPUs' load: each is taken once, for any number of listeners. Without one there is no timer."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Protocol

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.history import SampleHistory
from jupyter_gpu.model.view import Sample

from .worker_figures import WorkerFigures


class SampleListener(Protocol):
    """A client that shows samples."""

    def show_sample(self, text: str) -> None:
        """Show a sample, as JSON of a stream message; never blocks."""


class Sampler:
    """Samples of the pod's GPUs: taken for all listeners at once, only while there is one.

    ``interval`` is in seconds, ``capacity`` the number of samples that the history covers. ``hear`` is called with
    each.
    """

    def __init__(
        self,
        backend: Backend,
        interval: float,
        capacity: int,
        log: logging.Logger,
        hear: Callable[[Sample], None] = lambda _: None,
        figures: WorkerFigures | None = None,
    ) -> None:
        self.interval = interval
        self._hear, self._figures = hear, figures
        self._backend, self._log = backend, log
        self.history = SampleHistory(interval, capacity)
        """The samples so far, for viewers that join later."""
        self._newest: Sample | None = None
        self._listeners: set[SampleListener] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.taken_at = float("-inf")
        """Time of the last sample, on the clock of the event loop."""
        self._failed = False

    @property
    def watched(self) -> bool:
        """Whether a listener wants samples."""
        return bool(self._listeners)

    @property
    def scheduled(self) -> bool:
        """Whether the next sample has a timer."""
        return self._timer is not None

    @property
    def taking(self) -> bool:
        """Whether a sample is being taken."""
        return self._task is not None

    def watch(self, listener: SampleListener, on: bool) -> None:
        """Turn samples for ``listener`` on or off."""
        (self._listeners.add if on else self._listeners.discard)(listener)
        if self._listeners:
            self._arm()
        elif self._timer:
            self._timer.cancel()
            self._timer = None

    async def now(self) -> Sample:
        """Return a sample that is no older than the interval, possibly taken for another caller.

        Raises `BackendUnavailable` if none can be taken.
        """
        if self._task is None and asyncio.get_running_loop().time() - self.taken_at >= self.interval:
            if self._timer:
                self._timer.cancel()
            self._begin()
        if self._task:
            await asyncio.wait((self._task,))
        if self._failed or self._newest is None:
            raise BackendUnavailable("The load of the GPUs cannot be read now. Try again; the server's log says why.")
        return self._newest

    async def stop(self) -> None:
        """Take no more samples."""
        self._listeners.clear()
        if self._timer:
            self._timer.cancel()
        if self._task:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    def _arm(self) -> None:
        if self._timer or self._task:
            return
        loop = asyncio.get_running_loop()
        # Measured from the last sample, so that switching on and off does not make them more frequent.
        self._timer = loop.call_at(max(loop.time(), self.taken_at + self.interval), self._begin)

    def _begin(self) -> None:
        self._timer = None
        loop = asyncio.get_running_loop()
        self.taken_at = loop.time()
        self._task = loop.create_task(self._take())

    async def _take(self) -> None:
        try:
            sample = await self._backend.sample()
            if self._figures is not None:
                sample = self._figures.sampled(sample, self._backend.view())
            text = f'{{"type":"sample","sample":{self.history.push(sample)}}}'
        except Exception as error:  # a chart pauses; the rest must continue
            if not self._failed:
                self._log.warning("The load of the GPUs cannot be read; trying again: %s", error, exc_info=error)
            self._failed = True
        else:
            self._failed = False
            self._newest = sample
            self._hear(sample)
            for listener in tuple(self._listeners):
                listener.show_sample(text)
        finally:
            self._task = None
        if self._listeners:
            self._arm()
