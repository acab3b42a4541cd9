"""The workers of a pod of which something should have been heard by now."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeAlias

PATIENCE = 10.0
"""Seconds that the worker controller, and a worker that runs, have for their next word."""

Silence: TypeAlias = tuple[str, str]
"""A worker's id, and the stage in which it is."""


class SilentWorkers:
    """The workers that are in one stage for too long. ``tell`` is called when there is another one."""

    def __init__(self, tell: Callable[[], None]) -> None:
        self._tell = tell
        self._timers: dict[Silence, asyncio.TimerHandle] = {}
        self.silent: frozenset[Silence] = frozenset()

    def see(self, waited_for: frozenset[Silence]) -> None:
        """Take over which workers should say something; empty: none, and no timer is left."""
        for one in self._timers.keys() - waited_for:
            self._timers.pop(one).cancel()
        for one in waited_for - self._timers.keys():
            self._timers[one] = asyncio.get_running_loop().call_later(PATIENCE, self._late, one)
        self.silent &= waited_for

    def _late(self, one: Silence) -> None:
        self.silent |= {one}
        self._tell()
