"""inotify(7), through the C library: a descriptor that becomes readable when something happens to a file."""

from __future__ import annotations

import contextlib
import ctypes
import os
from pathlib import Path

CLOSE_WRITE = 0x8
ATTRIB, MOVED_FROM, MOVED_TO, CREATE, DELETE, DELETE_SELF, MOVE_SELF = 0x4, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_libc = ctypes.CDLL(None, use_errno=True)


def open_queue() -> int | None:
    """Return a descriptor that never blocks; None where the system has none to give."""
    descriptor: int = _libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    return None if descriptor < 0 else descriptor


def add_watch(descriptor: int, path: Path, events: int) -> bool:
    """Watch ``path`` for ``events``; return whether that is possible."""
    return int(_libc.inotify_add_watch(descriptor, os.fsencode(path), events)) >= 0


def drain(descriptor: int) -> None:
    """Discard the events that are there: what happened is for the caller to find out."""
    with contextlib.suppress(BlockingIOError):
        while os.read(descriptor, 65536):
            pass
