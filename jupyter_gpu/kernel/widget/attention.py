"""The attention to pages that hear of the server through the kernel.

Only while a page has it, the kernel sends updates again and again: each message counts as activity of the kernel,
and a kernel that is not used must be ended where idle ones are.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from typing import Any

_LEASE = 40.0
"""Seconds for which a page's word holds; a page that is looked at says it again before."""


class Attention:
    """Attention from a display or a page's word on, and while a cell runs: until its end the kernel hears no page."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._until = 0.0
        self._running = self._kept = False
        self._events: Any = None

    @property
    def held(self) -> bool:
        """Whether a page is looked at, as far as one can know."""
        return self._kept or self._clock() < self._until

    def look(self) -> None:
        """Note that a page says so, or will soon."""
        self._until = self._clock() + _LEASE
        self._kept = self._running

    def cell_begins(self, *_: object) -> None:
        """Note that no page is heard from now on."""
        self._running = True
        self._kept = self.held

    def cell_ends(self, *_: object) -> None:
        """Note that pages are heard again; give them time to say something."""
        self._running = False
        if self._kept:
            self._kept = False
            self._until = self._clock() + _LEASE

    def watch(self) -> None:
        """Hear of cells, in a kernel. It is called from one."""
        ipython = sys.modules.get("IPython")
        shell = ipython.get_ipython() if ipython is not None else None
        if shell is not None:
            self._events = shell.events
            self._running = True
            self._events.register("pre_run_cell", self.cell_begins)
            self._events.register("post_run_cell", self.cell_ends)

    def stop(self) -> None:
        """Hear of cells no more."""
        events, self._events = self._events, None
        if events is not None:
            events.unregister("pre_run_cell", self.cell_begins)
            events.unregister("post_run_cell", self.cell_ends)
