"""Hear of the end of a process without asking for it again and again."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable, Iterable

from .processes import Process, alive


class Watch:
    """Calls back on the event loop when one of the watched processes ends. No timer, no thread: pidfds."""

    def __init__(self, ended: Callable[[], None]) -> None:
        self._ended = ended
        self._open: dict[Process, int] = {}

    def set(self, processes: Iterable[Process]) -> None:
        """Watch exactly these from now on. One that has ended already is told of as well."""
        wanted = frozenset(processes)
        for process in self._open.keys() - wanted:
            self._close(process)
        for process in wanted - self._open.keys():
            self._add(process)

    def _add(self, process: Process) -> None:
        loop = asyncio.get_running_loop()
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            loop.call_soon(self._ended)
            return
        except OSError:  # too many open files: the timers of a reconcile find it out, later
            return
        if not alive(process):  # asked after the descriptor is there: the pid was not given to another meanwhile
            os.close(descriptor)
            loop.call_soon(self._ended)
            return
        self._open[process] = descriptor
        loop.add_reader(descriptor, self._heard, process)

    def _heard(self, process: Process) -> None:
        self._close(process)  # it stays readable for ever
        self._ended()

    def _close(self, process: Process) -> None:
        descriptor = self._open.pop(process, None)
        if descriptor is not None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                asyncio.get_running_loop().remove_reader(descriptor)
            os.close(descriptor)
