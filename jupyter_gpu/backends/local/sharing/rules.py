"""The rules of sharing of this machine, as whoever owns it has set them: one file, read at each look at the records.

    /etc/jupyter/jupyter_gpu_shares.json    root's; where it is, it alone counts
    <state>/shares.json                     without that one: of root, or of the owner of the state directory

The arbiter serves all users, and runs as whichever was first: so what belongs to that user does not count for it alone.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from pathlib import Path

from jupyter_gpu import settings_file
from jupyter_gpu.model import strict
from jupyter_gpu_node import share_settings
from jupyter_gpu_node.share_settings import ShareSettings

from . import places

MACHINE = Path("/etc/jupyter/jupyter_gpu_shares.json")
NAME = "shares.json"
"""Of the file in the state directory, which is gone after a reboot on most machines."""
KEY = "shares"
"""What the whole is called in errors, as in the chart of the cluster."""
_KEPT = "The rules stay as they are, from the start the defaults, until it is corrected: then it is read by itself."
_REFUSED = {
    errno.ELOOP: "is a link: put the file itself there",
    errno.EACCES: "can't be read by the user who hands out GPU time now: let everybody read it (chmod 644)",
}


class Rules:
    """Of one state directory. Where a file cannot be used, what held before holds, and ``problem`` says why."""

    def __init__(self, state: Path, machine: Path = MACHINE) -> None:
        self._state = state
        self._machine = machine
        self._text = b"{}"
        self.settings = ShareSettings()
        self.problem = ""

    def of(self, gpu: str) -> share_settings.Rules:
        """Of one GPU of this host."""
        return self.settings.of(socket.gethostname(), gpu)

    def look(self) -> bool:
        """In a thread: read the file; whether other rules hold from now on."""
        before = self.settings
        try:
            path, text = self._found()
            if text != self._text:
                self.settings, self._text = parse(text, str(path)), text
            self.problem = ""
        except strict.FieldError as error:
            self.problem = strict.printable(
                f"The rules of time shares can't be used. {error} {_KEPT}", places.MAX_PROBLEM
            )
        return self.settings != before

    def _found(self) -> tuple[Path, bytes]:
        """The file that counts; if there is none, nothing is set."""
        path = self._state / NAME
        with _missing():
            return self._machine, read(self._machine, {0})
        with _missing():
            return path, read(path, {0, self._state.stat().st_uid})
        return path, b"{}"


def _missing() -> contextlib.AbstractContextManager[None]:
    return contextlib.suppress(FileNotFoundError, NotADirectoryError)


def read(path: Path, owners: set[int]) -> bytes:
    """Text of a file that nobody but these users can change.

    Raises :class:`strict.FieldError`, and :class:`FileNotFoundError` or :class:`NotADirectoryError` if there is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            if why := _unfit(os.fstat(descriptor), owners):
                raise strict.FieldError(f"{path} {why}.")
            return os.read(descriptor, settings_file.MAX_BYTES + 1)
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        why = _REFUSED.get(error.errno or 0, f"can't be read: {error.strerror}")
        raise strict.FieldError(f"{path} {why}.") from None


def _unfit(about: os.stat_result, owners: set[int]) -> str:
    """Why such a file does not count, if so."""
    if not stat.S_ISREG(about.st_mode):
        return "is no regular file; put one there, or remove it"
    if about.st_uid not in owners:
        allowed = " or ".join(f"user {owner}" for owner in sorted(owners))
        return f"belongs to user {about.st_uid} and must belong to {allowed}: chown or remove it"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be changed by others than its owner: forbid that (chmod 644)"
    return ""


def parse(text: bytes, where: str) -> ShareSettings:
    """What such a file says; raises :class:`strict.FieldError`."""
    try:
        found = share_settings.read(strict.loads(text, settings_file.MAX_BYTES), KEY)
        for name, wanted in (("enforce", not found.enforce), ("partMemory", found.part_memory)):
            if wanted:
                raise strict.FieldError(f"'{KEY}.{name}' can be changed in a cluster only: leave it out.", name)
    except strict.FieldError as error:
        raise strict.FieldError(f"{where}: {error}", error.field) from None
    return found
