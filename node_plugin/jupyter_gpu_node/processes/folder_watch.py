"""A watch for files of a directory that come or go, such as the kubelet's socket: at once, within a second at worst.

inotify(7) is asked where there is one. It is only a hint to look: the caller compares what is there with what was.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import logging
import os
from pathlib import Path

POLL_SECONDS = 1.0
_IN_CREATE, _IN_DELETE, _IN_MOVED_TO, _IN_MOVED_FROM = 0x100, 0x200, 0x80, 0x40
_CHANGES = _IN_CREATE | _IN_DELETE | _IN_MOVED_TO | _IN_MOVED_FROM
_libc = ctypes.CDLL(None, use_errno=True)
_log = logging.getLogger(__name__)


class FolderWatch:
    """Changes of one directory; to be closed."""

    def __init__(self, directory: Path, *, poll: float = POLL_SECONDS) -> None:
        self._poll = poll
        self._changed = asyncio.Event()
        self._descriptor = _watch(directory)
        if self._descriptor is None:
            _log.info("There is no inotify for %s: looking every %g seconds instead.", directory, poll)
        else:
            asyncio.get_running_loop().add_reader(self._descriptor, self._read)

    async def wait(self) -> None:
        """Wait until something may have changed since the last call."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._poll):
                await self._changed.wait()
        self._changed.clear()

    def poke(self) -> None:
        """Have `wait` return: something else changed that its caller looks at."""
        self._changed.set()

    def close(self) -> None:
        """Let go of the descriptor."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> None:
        assert self._descriptor is not None
        with contextlib.suppress(BlockingIOError):
            os.read(self._descriptor, 65536)
        self._changed.set()


def _watch(directory: Path) -> int | None:
    descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if _libc.inotify_add_watch(descriptor, os.fsencode(directory), _CHANGES) < 0:
        os.close(descriptor)
        return None
    return descriptor
