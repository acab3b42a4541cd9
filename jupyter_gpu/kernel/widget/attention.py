"""Tracks whether a page that reaches the server through the kernel is visible.

The kernel sends repeated updates only while a page needs them: each message counts as activity of the kernel, and an
unused kernel must be culled where idle kernels are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

_SECONDS = 40.0
"""Seconds for which a page counts as visible after its message; it repeats the message sooner."""


class Attention:
    """Visibility of a slider: after its display or a page's message, and on during a cell, when no message is read."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._running = self._kept = False
        self._events: Any = None

    @property
    def held(self) -> bool:
        """Whether a page is visible, as far as is known."""
        return self._kept or self._clock() < self._until

    def seen(self) -> None:
        """Note that a page is visible, or will be soon."""
        self._until = self._clock() + _SECONDS
        self._kept = self._running

    def cell_begins(self, *_: object) -> None:
        """Note that messages are not read from now on."""
        self._running = True
        self._kept = self.held

    def cell_ends(self, *_: object) -> None:
        """Note that messages are read again; give pages time to send one."""
        self._running = False
        if self._kept:
            self._kept = False
            self._until = self._clock() + _SECONDS

    def watch(self) -> None:
        """Follow the cells of a kernel; call it from a cell."""
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        if shell is not None:
            self._events = shell.events
            self._running = True
            self._events.register("pre_run_cell", self.cell_begins)
            self._events.register("post_run_cell", self.cell_ends)

    def stop(self) -> None:
        """Stop following the cells."""
        events, self._events = self._events, None
        if events is not None:
            events.unregister("pre_run_cell", self.cell_begins)
            events.unregister("post_run_cell", self.cell_ends)
