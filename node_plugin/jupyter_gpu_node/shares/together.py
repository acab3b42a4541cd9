"""The GPUs of one node as :mod:`~.gangs` sees them: which pods have a program on several, and what follows from that.

A program is a process. It is on a GPU from its first launch or allocation there on, as its gate connects then: before
anything that it has on one can wait for another.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Protocol

from .arbiter import Rule
from .desk import Desk
from .gangs import Gangs
from .identity import Peer

MOST = 8
"""Looks at a time: more follow a moment later, so that others are heard meanwhile."""
NO_RULE = Rule()


class Obeying(Protocol):
    """One GPU, as a :class:`~.station.Station` is one."""

    @property
    def desk(self) -> Desk:
        """Its shares."""

    def obey(self, rule: Rule) -> None:
        """That rule holds from now on."""


class Together:
    """Of one node, whose GPUs may become more. Where no process is on several, it does nothing."""

    def __init__(self, stations: Mapping[str, Obeying], clock: Callable[[], int]) -> None:
        self._stations = stations
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._gangs = Gangs()
        self._connected: dict[tuple[str, Peer], Counter[str]] = {}
        """Of each pod and process, its connections by GPU."""
        self._several: tuple[str, ...] = ()
        """Pods of which one process is on several GPUs."""
        self._rules: Mapping[str, Rule] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._looks = False
        self._again = False

    def came(self, gpu: str, pod: str, process: Peer) -> None:
        """It connected."""
        self._connected.setdefault((pod, process), Counter())[gpu] += 1
        self._count()

    def left(self, gpu: str, pod: str, process: Peer) -> None:
        """One of its connections ended."""
        there = self._connected[pod, process]
        there[gpu] -= 1
        if not there[gpu]:
            del there[gpu]
        if not there:
            del self._connected[pod, process]
        self._count()

    def _count(self) -> None:
        self._several = tuple(sorted({pod for (pod, _), there in self._connected.items() if len(there) > 1}))

    def changed(self) -> None:
        """Something happened on one of the GPUs."""
        if self._looks:
            self._again = True
        elif self._rules or self._several:
            self._look()

    def stop(self) -> None:
        """No more rules."""
        self._looks = True
        if self._timer:
            self._timer.cancel()

    def _look(self) -> None:
        self._looks = True
        try:
            for _ in range(MOST):
                self._again = False
                self._obey()
                if not self._again:
                    break
        finally:
            self._looks = False
            self._set_timer(self._gangs.wake)

    def _obey(self) -> None:
        desks = {gpu: station.desk for gpu, station in self._stations.items()}
        before, self._rules = self._rules, self._gangs.look(desks, self._several, self._clock())
        for gpu in sorted({*before, *self._rules}):
            if before.get(gpu, NO_RULE) != self._rules.get(gpu, NO_RULE):
                self._stations[gpu].obey(self._rules.get(gpu, NO_RULE))

    def _set_timer(self, wake: int | None) -> None:
        if self._timer:
            self._timer.cancel()
            self._timer = None
        if self._again or wake is not None:
            pause = 0 if self._again or wake is None else max(0, wake - self._clock())
            self._timer = self._loop.call_later(pause / 1e6, self._look)
