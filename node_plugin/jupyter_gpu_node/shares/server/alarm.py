"""A timer that rings to the microsecond.

Those of an event loop are rounded up to whole milliseconds, and a program that waits for its turn would wait for that
as well.
"""

from __future__ import annotations

import asyncio
import ctypes
import os
from collections.abc import Callable
from contextlib import suppress

_libc = ctypes.CDLL(None, use_errno=True)
_MONOTONIC = 1  # CLOCK_MONOTONIC, linux/time.h


class _Time(ctypes.Structure):
    """``struct timespec``."""

    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    """``struct itimerspec``, timerfd_settime(2)."""

    _fields_ = (("interval", _Time), ("value", _Time))


class Alarm:
    """An alarm: calls ``ring`` in the running loop, once for each `set`; if set again before, the last counts."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._ring = ring
        self._descriptor = _libc.timerfd_create(_MONOTONIC, os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            raise OSError(ctypes.get_errno(), "No timer can be made")
        self._setting = _Setting()
        self._pointer = ctypes.byref(self._setting)
        self._loop.add_reader(self._descriptor, self._rings)

    def set(self, after: int) -> None:
        """Ring in ``after`` microseconds, at least one."""
        seconds, rest = divmod(max(1, after), 1_000_000)
        value = self._setting.value
        value.seconds, value.nanoseconds = seconds, rest * 1000
        if _libc.timerfd_settime(self._descriptor, 0, self._pointer, None) < 0:
            raise OSError(ctypes.get_errno(), "The timer cannot be set")

    def close(self) -> None:
        """Stop ringing for good."""
        self._loop.remove_reader(self._descriptor)
        os.close(self._descriptor)

    def _rings(self) -> None:
        with suppress(BlockingIOError):  # set again after it rang and before it was heard
            os.read(self._descriptor, 8)
            self._ring()
