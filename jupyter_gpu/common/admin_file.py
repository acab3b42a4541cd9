"""Files of the administrator: settings for all servers of the machine, which other users can't have changed."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

from jupyter_gpu.model import strict

_REFUSED = {
    errno.ELOOP: "is a link: put the file itself there",
    errno.EACCES: "can't be read by the users whose servers need it: let everybody read it (chmod 644)",
}


class AdminFile(NamedTuple):
    """The content of such a file."""

    text: bytes
    """At most one byte more than is accepted, so that the reader of the text refuses it."""
    owner: int
    """User id."""
    changed: int
    """Seconds since 1970."""


def read(path: Path, owners: Collection[int], most: int) -> AdminFile:
    """Read a file of at most ``most`` bytes that only these users can change.

    Raises `FieldError` with a sentence, and `FileNotFoundError` or `NotADirectoryError` if there is none.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            about = os.fstat(descriptor)
            if why := _unfit(about, owners):
                raise strict.FieldError(f"{path} {why}.")
            return AdminFile(_whole(descriptor, most), about.st_uid, int(about.st_mtime))
        finally:
            os.close(descriptor)
    except (FileNotFoundError, NotADirectoryError):
        raise
    except OSError as error:
        why = _REFUSED.get(error.errno or 0, f"can't be read: {error.strerror}")
        raise strict.FieldError(f"{path} {why}.") from None


def signature(path: Path) -> object:
    """Return a value that is another one once the file at ``path`` is another, or was changed."""
    try:
        about = path.lstat()
    except OSError as error:
        return error.errno
    return about.st_dev, about.st_ino, about.st_size, about.st_mtime_ns, about.st_ctime_ns


def _whole(descriptor: int, most: int) -> bytes:
    text = b""
    while len(text) <= most and (part := os.read(descriptor, most + 1 - len(text))):
        text += part
    return text


def _unfit(about: os.stat_result, owners: Collection[int]) -> str:
    """Return the reason such a file does not count; empty if it does."""
    if not stat.S_ISREG(about.st_mode):
        return "is no regular file; put one there, or remove it"
    if about.st_uid not in owners:
        allowed = " or ".join(f"user {owner}" for owner in sorted(owners))
        return f"belongs to user {about.st_uid} and must belong to {allowed}: chown or remove it"
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "can be changed by others than its owner: forbid that (chmod 644)"
    return ""
