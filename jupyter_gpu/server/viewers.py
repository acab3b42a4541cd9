"""Views for all clients of one server: each is made once, for any number of them. Without clients there is no task."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Any, Protocol

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import BackendUnavailable
from jupyter_gpu.model.reservation import Block, held
from jupyter_gpu.model.sentence import sentence
from jupyter_gpu.model.view import Condition, View
from jupyter_gpu.server.rules.gateway import noted
from jupyter_gpu.server.rules.idle_times import IdleTimes

from .notebooks import Notebooks, named
from .reservations import Reservations
from .sampler import SampleListener, Sampler
from .worker_figures import WorkerFigures


def view_json(view: View) -> dict[str, Any]:
    """Return the body of every answer that is a view."""
    return {**view.to_json(), "sentence": sentence(view)}


Version = tuple[int, int]
"""Version and revision of a view."""


class Viewer(SampleListener, Protocol):
    """A client that shows views and samples. No method blocks."""

    def show_view(self, version: Version, text: str) -> None:
        """Show a view, as JSON of a stream message. A version older than the last is ignored."""

    def end(self) -> None:
        """End: the server stops."""


class Viewers:
    """The views of a backend, with the notebooks behind the processes, for streams and for long polls.

    ``figures``: what is known of workers on other nodes.
    """

    def __init__(
        self,
        backend: Backend,
        notebooks: Notebooks,
        sampler: Sampler,
        reservations: Reservations,
        figures: WorkerFigures | None = None,
    ) -> None:
        self.backend = backend
        self.sampler = sampler
        self.notes: tuple[Condition, ...] = ()
        """Conditions of the server in addition to those of its backend."""
        self._notebooks, self._reservations, self._figures = notebooks, reservations, figures
        self._idle = IdleTimes()
        self._idle.see(backend.view(), time.time())
        self._revision = 0
        self._viewers: set[Viewer] = set()
        self._waiting: set[asyncio.Future[None]] = set()
        self._changed = False
        self._task: asyncio.Task[None] | None = None
        self._stopped = False
        self._unsubscribe = backend.subscribe(self._on_view)
        reservations.changed = self._on_words
        if figures is not None:
            figures.changed = self._on_words

    async def named(self, view: View) -> View:
        """Return ``view`` with the notebooks behind its processes, idle times, and the blocks that raise the wish."""
        revision = self._revision  # read before the reservations, or it would claim newer ones
        view = replace(self._idle.added(view), revision=revision)
        if self._figures is not None:
            view = self._figures.added(view)
        reservations = self._reservations.current()
        kernels = {one.owner.kernel for one, _ in reservations if one.owner.kernel}
        names = await self._notebooks.names(view, (pid for _, pid in reservations if pid), kernels)
        blocks = [
            Block(names.label(pid, one.owner.kernel) or f"process {pid or one.owner.pid}", one.milli)
            for one, pid in reservations
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
        """Return a future that is done with a newer view, or when the server stops; cancel it to stop waiting."""
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
        """End ``viewer``; safe to call twice."""
        self._viewers.discard(viewer)
        self.sampler.watch(viewer, False)

    async def stop(self) -> None:
        """Answer all long polls and end all streams."""
        self._stopped = True
        self._unsubscribe()
        self._reservations.changed = lambda: None
        if self._figures is not None:
            self._figures.changed = lambda: None
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

    def _on_view(self, view: View) -> None:
        self._idle.see(view, time.time())
        self._wake()
        self._publish_soon()

    def _on_words(self) -> None:
        """Publish soon: other notebooks may raise the wish, or a worker's figures are new. No long poll is answered."""
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
