"""Notices the end of a state directory at once: a server that makes it anew starts a second arbiter."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from jupyter_gpu_node.processes import inotify

from . import files


class Removal:
    """A watch on the lock file and the directory (inotify(7)). Without inotify, the arbiter's polling must do."""

    def __init__(self, state: Path) -> None:
        queue = inotify.open_queue()
        if queue is None:
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # never says anything
            return
        self._descriptor = queue
        # The lock file is open, so its removal is only a change of its links.
        inotify.add_watch(queue, state / files.LOCK, inotify.ATTRIB | inotify.MOVE_SELF)
        inotify.add_watch(queue, state, inotify.MOVE_SELF | inotify.DELETE_SELF)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor, for an event loop."""
        return self._descriptor

    def heard(self, awake: asyncio.Event) -> None:
        """Take note that something happened to them."""
        inotify.drain(self._descriptor)
        awake.set()
