"""The usual place of the state directory, which the servers of one machine share."""

from __future__ import annotations

import contextlib
import stat
from pathlib import Path

FOLDER = "jupyter-gpu"
_SHARED = stat.S_ISVTX | 0o777

PLACES = (Path("/run/lock"), Path("/dev/shm"))  # noqa: S108 - opened without following links, every file in it checked
"""Every user can write there, a boot empties them, and a service with a private `/tmp` sees those of the machine."""
LAST_PLACE = Path("/tmp")  # noqa: S108 - the same


def default_path() -> Path:
    """Return the usual folder, which is the same for every user and service of the machine."""
    for place in PLACES:
        with contextlib.suppress(OSError):
            if stat.S_IMODE(place.lstat().st_mode) & _SHARED == _SHARED:
                return place / FOLDER
    return LAST_PLACE / FOLDER
