"""The end of a state directory, heard at once: a server that makes it anew starts one arbiter too many."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import os
from pathlib import Path
from types import TracebackType
from typing import Self

from . import files

_ATTRIB, _MOVE_SELF, _DELETE_SELF = 0x4, 0x800, 0x400
_libc = ctypes.CDLL(None, use_errno=True)


class Removal:
    """A watch on the lock file and the directory (inotify(7)). Where the system cannot, looks now and then must do."""

    def __init__(self, state: Path) -> None:
        self._descriptor = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
        if self._descriptor < 0:
            self._descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)  # never says anything
            return
        # The lock file is open, so its removal is only a change of its links.
        for path, events in ((state / files.LOCK, _ATTRIB | _MOVE_SELF), (state, _MOVE_SELF | _DELETE_SELF)):
            _libc.inotify_add_watch(self._descriptor, os.fsencode(path), events)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        os.close(self._descriptor)

    def fileno(self) -> int:
        """Return the descriptor, for an event loop."""
        return int(self._descriptor)

    def heard(self, awake: asyncio.Event) -> None:
        """Look: something happened to them."""
        with contextlib.suppress(BlockingIOError):
            while os.read(self._descriptor, 4096):
                pass
        awake.set()
