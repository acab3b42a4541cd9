"""Wishes that are made in a thread: one at a time, and the newest replaces what still waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

Done = Callable[[str], None]
"""Callback with the error in words; empty if there is none."""


class Wishes:
    """``make`` asks the server and returns what it refused, in words; it runs in a thread."""

    def __init__(self, make: Callable[[int], str]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._next: tuple[int, Done] | None = None
        self._running = False

    @property
    def pending(self) -> bool:
        """Whether one is on its way: what the server says meanwhile may be older."""
        return self._running

    def ask(self, milli: int, done: Done) -> None:
        """Make this wish as soon as the one before it is answered; returns at once."""
        with self._lock:
            replaced, self._next = self._next, (milli, done)
            start = not self._running
            self._running = True
        if replaced is not None:
            replaced[1]("")
        if start:
            threading.Thread(target=self._run, name="jupyter-gpu-wish", daemon=True).start()

    def _run(self) -> None:
        more = True
        while more:
            with self._lock:
                assert self._next is not None
                (milli, done), self._next = self._next, None
            error = self._make(milli)
            with self._lock:
                more = self._running = self._next is not None
            done(error)
