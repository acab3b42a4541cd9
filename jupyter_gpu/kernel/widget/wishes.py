"""Wishes that a thread sends: one at a time, and the newest replaces one that still waits."""

from __future__ import annotations

import threading
from collections.abc import Callable

Done = Callable[[str], None]
"""Callback with the error in words; empty if there is none."""


class Wishes:
    """The wishes of one slider. ``make`` asks the server, in a thread, and returns a refusal in words."""

    def __init__(self, make: Callable[[int], str]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._next: tuple[int, Done] | None = None
        self._running = False

    @property
    def pending(self) -> bool:
        """Whether one is under way: states of the server may be older meanwhile."""
        return self._running

    def ask(self, milli: int, done: Done) -> None:
        """Send this wish as soon as the one before is answered; return at once."""
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
