"""The files with the limits and GPU-hours of this machine's users: where they are, and how they are replaced."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path

from . import admin_file, faults

MACHINE = Path("/etc/jupyter/jupyter_gpu_limits.json")
ACCOUNTS = "accounts.json"
"""Name of the file with the GPU-hours, in the state directory and in `LASTING`."""
LASTING = Path("/var/lib/jupyter-gpu")
"""Folder of the GPU-hours that outlive a start of the machine."""
MAX_BYTES = 8 * 1024 * 1024
"""Most bytes of the file with the limits, as of an import."""


def accounts_of(limits: Path) -> Path:
    """Return the file with the GPU-hours of the users whose limits are in the file ``limits``."""
    return LASTING / ACCOUNTS if limits == MACHINE else limits.with_name(ACCOUNTS)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep other writers of the file away; its folder is made where it is missing. Raises `OSError`."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)  # ends the lock as well


class Changed(Exception):
    """The file is another one than the one that a change was made for."""


def replace(path: Path, text: str, seen: object = None) -> None:
    """Replace the file in one step, readable by all: a writer killed meanwhile leaves the old one whole.

    ``seen``: its `admin_file.signature` before; raises `Changed` if that is another one now, as an editor takes no
    lock. Raises `OSError`.
    """
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(8)}.new")
    try:
        with temporary.open("x", encoding="utf-8") as file:
            os.fchmod(file.fileno(), 0o644)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        faults.point("limits:temporary")
        if seen is not None and admin_file.signature(path) != seen:
            raise Changed
        temporary.replace(path)
        faults.point("limits:replaced")
    finally:
        temporary.unlink(missing_ok=True)
