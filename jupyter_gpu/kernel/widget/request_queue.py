"""Requests that a thread sends: one at a time, and the newest replaces one that still waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

Done = Callable[[str], None]
"""Callback with the error in words; empty if there is none."""


class RequestQueue:
    """The requests of one slider. ``send`` passes one to the server, in a thread, and returns a refusal in words."""

    def __init__(self, send: Callable[[int], str]) -> None:
        self._send = send
        self._lock = threading.Lock()
        self._next: tuple[int, Done] | None = None
        self._running = False

    @property
    def pending(self) -> bool:
        """Whether a request is under way: states from the server may be older than it."""
        return self._running

    def put(self, milli: int, done: Done) -> None:
        """Send a request for ``milli`` as soon as the one before is answered; return at once."""
        with self._lock:
            replaced, self._next = self._next, (milli, done)
            start = not self._running
            self._running = True
        if replaced is not None:
            replaced[1]("")
        if start:
            threading.Thread(target=self._run, name="jupyter-gpu-request", daemon=True).start()

    def _run(self) -> None:
        more = True
        while more:
            with self._lock:
                assert self._next is not None
                (milli, done), self._next = self._next, None
            error = self._send(milli)
            with self._lock:
                more = self._running = self._next is not None
            done(error)
