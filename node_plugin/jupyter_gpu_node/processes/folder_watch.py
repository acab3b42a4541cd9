"""A watch for files that come to or leave a folder, such as the kubelet's socket: at once, within a second at worst.

inotify(7) is used where it is available. It is only a hint: the caller compares what is there with what was there.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path

from . import inotify

POLL_SECONDS = 1.0
_CHANGES = inotify.CREATE | inotify.DELETE | inotify.MOVED_TO | inotify.MOVED_FROM
_log = logging.getLogger(__name__)


class FolderWatch:
    """A watch for changes of one folder; close it after use."""

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

    def notify(self) -> None:
        """Wake `wait`: something else changed that its caller checks."""
        self._changed.set()

    def close(self) -> None:
        """Close the descriptor."""
        if self._descriptor is not None:
            asyncio.get_running_loop().remove_reader(self._descriptor)
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> None:
        assert self._descriptor is not None
        inotify.drain(self._descriptor)
        self._changed.set()


def _watch(directory: Path) -> int | None:
    descriptor = inotify.open_queue()
    if descriptor is not None and not inotify.add_watch(descriptor, directory, _CHANGES):
        os.close(descriptor)
        return None
    return descriptor
