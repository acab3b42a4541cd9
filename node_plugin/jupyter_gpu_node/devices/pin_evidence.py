"""Evidence that all pins made since the machine started are still there.

A pod without a control group and without a pin has not run since the machine started, so no process that runs has a GPU
from it. That holds only while no pin can have been lost: by a bpffs that was unmounted, or mounted over, by another
directory in the settings, by a node plugin that ran without pins. So a note names the directory that has them, in a
file that, like the bpffs, does not outlive the machine. A directory that does not match is doubted until the machine
starts anew.

- No note and no directory: the machine has just started. (It looks the same if both were removed.)
- No note but a directory: an earlier version made it, or the note was removed.
- Another directory than noted, or none: pins were lost.
"""

from __future__ import annotations

import logging
from pathlib import Path

from jupyter_gpu.model import strict

MAX_BYTES = 64 * 1024
Identity = tuple[str, int, int]
"""Path, file system and number of a directory: one that was removed and made again has another number."""
_log = logging.getLogger(__name__)


def identity(directory: Path | None) -> Identity | None:
    """Return the identity of the directory as it is now; None where there is none."""
    try:
        found = directory.stat() if directory else None
    except FileNotFoundError:
        return None
    return (str(directory), found.st_dev, found.st_ino) if found else None


def all_there(directory: Path | None, note: Path) -> bool:
    """Make the directory of the pins, note it, and tell whether it has all pins. None: pins cannot be made here."""
    try:
        before, trusted = _read(note)
        if directory is not None and before is None and identity(directory) is None:
            trusted = not note.exists()
        if directory is not None:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        now = identity(directory)
        whole = now is not None and trusted and before in (None, now)
        note.parent.mkdir(parents=True, exist_ok=True)
        draft = note.with_suffix(".new")
        draft.write_bytes(strict.dumps({"directory": list(now or ()), "whole": whole}).encode())
        draft.replace(note)
    except OSError as error:
        _log.warning("Whether pins were lost since this node started cannot be told, and is assumed: %s", error)
        return False
    return whole


def _read(note: Path) -> tuple[Identity | None, bool]:
    """Return the noted directory, and whether it had all pins then; nothing if the note cannot be read."""
    try:
        with note.open("rb") as file:
            body = strict.an_object(strict.loads(file.read(MAX_BYTES + 1), MAX_BYTES), "what was noted of the pins")
        path, device, inode = strict.required(body, "directory", lambda value, _: value)
        return (str(path), int(device), int(inode)), strict.required(body, "whole", strict.boolean)
    except FileNotFoundError:
        return None, False
    except (ValueError, TypeError):
        return None, False
