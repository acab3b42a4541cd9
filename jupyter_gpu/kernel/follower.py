"""Follows the views of a server, across lost connections and restarts: one long poll for all listeners."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.view import View

from .client import Client, Exchange, get_status

_POLL = 25.0
"""Seconds that one poll waits at the server."""
_FIRST_PAUSE, _LONGEST_PAUSE = 0.25, 5.0
"""Seconds between polls while the server does not answer."""


class ViewFollower:
    """A follower of one server. ``client`` is called for each poll, as the user may choose another server meanwhile."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._lock = threading.Lock()
        self._ended = threading.Event()
        self._exchange: Exchange | None = None

    def views(self, view: View | None = None) -> Iterator[View | GpuError]:
        """Yield each view other than ``view`` and the one before, and once an error if there is none, until `end`."""
        pause, lost = _FIRST_PAUSE, False
        while not self._ended.is_set():
            try:
                newer = self._ask(view)
            except GpuError as error:
                if not lost and not self._ended.is_set():
                    yield error
                lost = True
                self._ended.wait(pause)
                pause = min(2 * pause, _LONGEST_PAUSE)
                continue
            if lost or view is None or (newer.instance, newer.version) != (view.instance, view.version):
                yield newer
            view, pause, lost = newer, _FIRST_PAUSE, False

    def end(self) -> None:
        """End `views`, which runs in another thread, soon."""
        self._ended.set()
        with self._lock:
            if self._exchange is not None:
                self._exchange.abort()

    def _ask(self, after: View | None) -> View:
        exchange = self._client().exchange(get_status(after, _POLL))
        with self._lock:
            self._exchange = exchange
        try:
            return exchange.run()
        finally:
            with self._lock:
                self._exchange = None
