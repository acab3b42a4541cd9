"""Files that only root and the owner of a directory may have written. Reading blocks."""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read(path: Path, top: Path, limit: int) -> str | None:
    """Return at most ``limit`` bytes; None for a file that is missing, or belongs to another user."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        found = os.fstat(descriptor)
        if found.st_uid not in (0, top.stat().st_uid) or not stat.S_ISREG(found.st_mode):
            return None
        return os.read(descriptor, limit).decode(errors="replace").strip()
    finally:
        os.close(descriptor)
