"""A watch on the file with the machine's limits (inotify(7)): a change is heard at once, and nothing is polled.

Where the system cannot, a server notices a change with its next decision; one that has GPUs looks every ten seconds.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from jupyter_gpu_node.processes import inotify

_FILES = inotify.ATTRIB | inotify.CLOSE_WRITE | inotify.MOVED_FROM | inotify.MOVED_TO | inotify.CREATE | inotify.DELETE
_EVENTS = _FILES | inotify.DELETE_SELF | inotify.MOVE_SELF


class LimitsFileWatch:
    """A watch on the folders of the file, or on the nearest ones above that exist."""

    def __init__(self, paths: Iterable[Path]) -> None:
        self._folders = tuple(path.parent for path in paths)
        self._queue = inotify.open_queue()
        self._arm()

    def fileno(self) -> int | None:
        """Return the descriptor, for an event loop; ``None`` where the system has none to give."""
        return self._queue

    def drain(self) -> None:
        """Take what happened; a folder that was made meanwhile is watched from now on."""
        if self._queue is not None:
            inotify.drain(self._queue)
            self._arm()

    def close(self) -> None:
        """End the watch."""
        if self._queue is not None:
            os.close(self._queue)
            self._queue = None

    def _arm(self) -> None:
        if self._queue is None:
            return
        for folder in self._folders:
            nearest = next(place for place in (folder, *folder.parents) if place.is_dir())
            inotify.add_watch(self._queue, nearest, _EVENTS)
