"""Notification of the ends of processes, without polling."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Hashable, Iterable
from typing import Generic, Protocol, TypeVar


class HasPid(Hashable, Protocol):
    """An object that identifies a process."""

    @property
    def pid(self) -> int:
        """Its number."""


P = TypeVar("P", bound=HasPid)


class ProcessEnds(Generic[P]):
    """A watch that calls back on the event loop when one of its processes ends. No timer, no thread: pidfds.

    ``alive`` says whether it is still the very process that is meant, and not a later one with its number.
    """

    def __init__(self, ended: Callable[[], None], alive: Callable[[P], bool]) -> None:
        self._ended = ended
        self._alive = alive
        self._open: dict[P, int] = {}

    def set(self, processes: Iterable[P]) -> None:
        """Watch exactly these from now on; report one that has already ended."""
        wanted = frozenset(processes)
        for process in self._open.keys() - wanted:
            self._close(process)
        for process in wanted - self._open.keys():
            self._add(process)

    def _add(self, process: P) -> None:
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            loop.call_soon(self._ended)
            return
        except OSError:  # too many open files: the timers of a reconcile find it out, later
            return
        if not self._alive(process):  # asked after the descriptor is there: the pid was not given to another meanwhile
            os.close(descriptor)
            loop.call_soon(self._ended)
            return
        self._open[process] = descriptor
        loop.add_reader(descriptor, self._heard, process)

    def _heard(self, process: P) -> None:
        self._close(process)  # it stays readable for ever
        self._ended()

    def _close(self, process: P) -> None:
        descriptor = self._open.pop(process, None)
        if descriptor is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
