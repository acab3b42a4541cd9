"""Paths of a share's files and socket: ``shares`` below a directory that one pod sees, or the node alone.

Directories are opened once, and everything in them is done through the descriptor. So no link is followed: no process
that can write there (no pod should) makes us write elsewhere. And a path may be longer than the address of a socket.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import stat
from collections.abc import Iterator
from pathlib import Path

FOLDER = "shares"
BACKLOG = 128
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def is_name(text: str) -> bool:
    """Tell whether it can be part of a path."""
    return _NAME.fullmatch(text) is not None


def checked(name: str) -> str:
    """Return ``name``, if it can be part of a path; else raise `ValueError`."""
    if not is_name(name):
        raise ValueError(f"{name[:80]!r} is no uuid: letters, digits, '_' and '-', at most 64.")
    return name


@contextlib.contextmanager
def opened(directory: Path, *inner: str) -> Iterator[int]:
    """Yield a descriptor of the folder ``shares/…`` in ``directory``, made if missing. Raises `OSError`."""
    directory.mkdir(parents=True, exist_ok=True)
    folder = os.open(directory, _DIRECTORY)
    try:
        for name in (FOLDER, *inner):
            with contextlib.suppress(FileExistsError):
                os.mkdir(name, 0o755, dir_fd=folder)
            outer, folder = folder, os.open(name, _DIRECTORY, dir_fd=folder)
            os.close(outer)
            about = os.fstat(folder)
            if about.st_uid != os.geteuid() or stat.S_IMODE(about.st_mode) & 0o022:
                raise PermissionError(f"{directory}/{FOLDER} can be changed by others: only its server may do that.")
        yield folder
    finally:
        os.close(folder)


def replace(folder: int, name: str, text: bytes) -> None:
    """Write a new file and move it over the old one: a reader finds one or the other."""
    draft = f".{name}.new"
    discard(folder, draft)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(draft, flags, 0o644, dir_fd=folder)
    try:
        left = memoryview(text)
        while left:
            left = left[os.write(descriptor, left) :]
    finally:
        os.close(descriptor)
    os.rename(draft, name, src_dir_fd=folder, dst_dir_fd=folder)


def read(folder: int, name: str, most: int) -> bytes:
    """Return up to ``most`` + 1 bytes of a regular file; raises `OSError`."""
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{name} is no regular file.")
        return os.read(descriptor, most + 1)
    finally:
        os.close(descriptor)


def discard(folder: int, name: str) -> None:
    """Remove a file, whether it is there or not."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(name, dir_fd=folder)


def socket_name(gpu: str) -> str:
    """Return the name of the socket by which programs use their share of that GPU."""
    return f"{checked(gpu)}.sock"


def listen(directory: Path, gpu: str) -> socket.socket:
    """Listen on that socket, open to every user of the pod; removes an earlier share's. Raises `OSError`."""
    name = socket_name(gpu)
    with opened(directory) as folder:
        for old in (name, file_name(gpu)):
            discard(folder, old)
        found = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK)
        try:
            found.bind(f"/proc/self/fd/{folder}/{name}")
            os.chmod(name, 0o666, dir_fd=folder)  # noqa: S103 - each connection is checked
            found.listen(BACKLOG)
        except BaseException:
            found.close()
            raise
        return found


def forget(directory: Path, gpu: str) -> None:
    """Remove what the pod sees of a share. Raises `OSError`."""
    if not directory.is_dir():
        return
    with opened(directory) as folder:
        for name in (socket_name(gpu), file_name(gpu)):
            discard(folder, name)


def file_name(name: str) -> str:
    """Return the name of a share's file."""
    return f"{checked(name)}.json"
