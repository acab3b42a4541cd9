"""The views and samples for all clients of one server: each is made once, for any number of viewers.

Without clients there is no task and no timer.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Protocol

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.history import SampleHistory
from jupyter_gpu.model.lease import Block, held
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import Condition, Sample, View
from jupyter_gpu.server.rules.gateway import noted

from .leases import Leases
from .notebooks import Notebooks, named


def view_json(view: View) -> dict[str, Any]:
    """Return the body of every answer that is a view."""
    return {**view.to_json(), "sentence": sentence(view)}


Version = tuple[int, int]
"""Version and revision of a view."""


class Viewer(Protocol):
    """A client that shows views and samples; no method waits."""

    def show_view(self, version: Version, text: str) -> None:
        """Show a view, as JSON of a stream message. Older versions than shown before are to be ignored."""

    def show_sample(self, text: str) -> None:
        """Show a sample, as JSON of a stream message."""

    def end(self) -> None:
        """End the viewer: the server stops."""


class Sampler:
    """Samples of the pod's GPUs: taken for all viewers at once, only while there is one.

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
    ) -> None:
        self.interval = interval
        self._hear = hear
        self._backend, self._log = backend, log
        self.history = SampleHistory(interval, capacity)
        """The samples so far, for viewers that come later."""
        self._newest: Sample | None = None
        self._viewers: set[Viewer] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.taken_at = float("-inf")
        """Time of the last sample, on the clock of the event loop."""
        self._failed = False

    @property
    def watched(self) -> bool:
        """Whether a viewer wants samples."""
        return bool(self._viewers)

    @property
    def scheduled(self) -> bool:
        """Whether the next sample has a timer."""
        return self._timer is not None

    @property
    def taking(self) -> bool:
        """Whether a sample is being taken."""
        return self._task is not None

    def watch(self, viewer: Viewer, on: bool) -> None:
        """Note that ``viewer`` wants samples from now on, or no more."""
        (self._viewers.add if on else self._viewers.discard)(viewer)
        if self._viewers:
            self._arm()
        elif self._timer:
            self._timer.cancel()
            self._timer = None

    async def now(self) -> Sample:
        """Return a sample that is no older than the interval, whoever it was taken for.

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
        self._viewers.clear()
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
            text = f'{{"type":"sample","sample":{self.history.push(sample)}}}'
        except Exception as error:  # a chart pauses; the rest must continue
            if not self._failed:
                self._log.warning("The load of the GPUs cannot be read; trying again: %s", error, exc_info=error)
            self._failed = True
        else:
            self._failed = False
            self._newest = sample
            self._hear(sample)
            for viewer in tuple(self._viewers):
                viewer.show_sample(text)
        finally:
            self._task = None
        if self._viewers:
            self._arm()


class Viewers:
    """The views of a backend, with the notebooks behind the processes, for streams and for long polls."""

    def __init__(self, backend: Backend, notebooks: Notebooks, sampler: Sampler, leases: Leases) -> None:
        self.backend = backend
        self.sampler = sampler
        self.notes: tuple[Condition, ...] = ()
        """Conditions of the server in addition to those of its backend."""
        self._notebooks, self._leases = notebooks, leases
        self._revision = 0
        self._viewers: set[Viewer] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        self._changed = False
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._unsubscribe = backend.subscribe(self._on_view)
        leases.changed = self._on_leases

    async def named(self, view: View) -> View:
        """Return ``view`` with the notebooks behind its processes, and with what their running code holds."""
        view = replace(view, revision=self._revision)  # read before the leases that it counts, or it would be too new
        leases = self._leases.held()
        kernels = {lease.owner.kernel for lease, _ in leases if lease.owner.kernel}
        names = await self._notebooks.names(view, (pid for _, pid in leases if pid), kernels)
        blocks = [
            Block(names.label(pid, lease.owner.kernel) or f"process {pid or lease.owner.pid}", lease.milli)
            for lease, pid in leases
        ]
        return noted(held(named(view, names), blocks), self.notes)

    @property
    def streams(self) -> tuple[Viewer, ...]:
        """The viewers that have joined."""
        return tuple(self._viewers)

    @property
    def polls(self) -> int:
        """Number of long polls that wait."""
        return len(self._waiting)

    async def now(self) -> dict[str, Any]:
        """Return the body of the latest view."""
        return view_json(await self.named(self.backend.view()))

    def newer(self, instance: str, version: int) -> asyncio.Future[None]:
        """Return a future that is done when there is a newer view or no more will come; cancel it to stop waiting."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        view = self.backend.view()
        if self._stopped or view.instance != instance or view.version > version:
            future.set_result(None)
        else:
            self._waiting.add(future)
            future.add_done_callback(self._waiting.discard)
        return future

    def check_open(self) -> None:
        """Raise if the server is stopping."""
        if self._stopped:
            raise BackendUnavailable("This server is stopping. Start it again to use GPUs.")

    async def join(self, viewer: Viewer) -> None:
        """Show ``viewer`` the view now and each new one, until it leaves."""
        self.check_open()
        self._viewers.add(viewer)
        view = await self.named(self.backend.view())
        viewer.show_view((view.version, view.revision), _message(view))

    def leave(self, viewer: Viewer) -> None:
        """End ``viewer``; may come twice."""
        self._viewers.discard(viewer)
        self.sampler.watch(viewer, False)

    async def stop(self) -> None:
        """End all waiting and all streams."""
        self._stopped = True
        self._unsubscribe()
        self._leases.changed = lambda: None
        self._wake()
        await self.sampler.stop()
        if self._task:
            await self._task
        for viewer in tuple(self._viewers):
            viewer.end()

    def _wake(self) -> None:
        for future in tuple(self._waiting):
            if not future.done():
                future.set_result(None)

    def _on_view(self, _: View) -> None:
        self._wake()
        self._publish_soon()

    def _on_leases(self) -> None:
        """Publish soon: the last view may name another notebook as a holder. No program waits for that."""
        self._revision += 1
        self._publish_soon()

    def _publish_soon(self) -> None:
        self._changed = True
        if self._viewers and self._task is None:
            self._task = asyncio.get_running_loop().create_task(self._publish())

    async def _publish(self) -> None:
        """Show the latest view to all; views that were replaced meanwhile are skipped."""
        try:
            while self._changed and self._viewers:
                self._changed = False
                view = await self.named(self.backend.view())
                text = _message(view)
                for viewer in tuple(self._viewers):
                    viewer.show_view((view.version, view.revision), text)
        finally:
            self._task = None


def _message(view: View) -> str:
    return strict.dumps({"type": "view", "view": view_json(view)})
