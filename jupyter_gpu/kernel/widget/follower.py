"""Follows a server in a thread, so that updates arrive while a cell runs, also those that others caused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol

from jupyter_gpu.kernel.client import Call, Client, Exchange, get_status
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.view import Sample, View

_POLL = 25.0
"""Seconds that one poll waits at the server."""
_BEAT = 2.5
"""The same while a page is served through the kernel: states are sent this often, so silence means a dead kernel."""
_PATIENCE = 5.0
"""Seconds that a server may take beyond them."""
_FIRST, _LONGEST = 0.5, 10.0
"""Seconds between attempts while there is no server."""


class Listener(Protocol):
    """The listener that a follower calls, from its thread."""

    @property
    def watched(self) -> bool:
        """Whether to repeat states, and show how time shares are used."""

    def show(self, view: View) -> None:
        """Show the latest view, new or not."""

    def show_sample(self, sample: Sample) -> None:
        """Show how time shares are used."""

    def lost(self, error: GpuError) -> None:
        """Report that there is no server, or that it does not answer; the follower keeps trying."""


class WidgetFollower(threading.Thread):
    """A follower that runs until stopped. ``client`` is called each time: `gpu.connect` may choose another server."""

    def __init__(self, client: Callable[[], Client], listener: Listener) -> None:
        super().__init__(name="jupyter-gpu-widget", daemon=True)
        self._client, self._listener = client, listener
        self._exchange: Exchange | None = None
        self._ended = threading.Event()
        self._woken = threading.Event()
        self._quick = False

    def wake(self) -> None:
        """Poll at once: a page begins to show the slider."""
        if not self._quick:
            self._woken.set()
            self._abort()

    def stop(self) -> None:
        """End the thread, and its current poll."""
        self._ended.set()
        self._woken.set()
        self._abort()

    def run(self) -> None:
        """Poll and report until stopped."""
        view: View | None = None
        pause = _FIRST
        while not self._ended.is_set():
            try:
                view = self._ask(view)
                self._listener.show(view)
                self._show_shares(view)
                pause = _FIRST
            except GpuError as error:
                if self._woken.is_set():
                    self._woken.clear()
                    view = None
                    continue
                view = None
                self._listener.lost(error)
                self._woken.wait(pause)
                self._woken.clear()
                pause = min(2 * pause, _LONGEST)

    def _ask(self, after: View | None) -> View:
        self._quick = self._listener.watched
        wait = _BEAT if self._quick else _POLL
        exchange = self._client().exchange(get_status(after, wait, _PATIENCE))
        self._exchange = exchange
        try:
            return exchange.run()
        finally:
            self._exchange = None

    def _show_shares(self, view: View) -> None:
        if self._listener.watched and any(item.milli < MILLI_PER_GPU for item in view.gpus):
            call = Call("GET", "sample", patience=_PATIENCE)
            self._listener.show_sample(self._client().exchange(call).ask(Sample.from_json))

    def _abort(self) -> None:
        exchange = self._exchange
        if exchange is not None:
            exchange.abort()
