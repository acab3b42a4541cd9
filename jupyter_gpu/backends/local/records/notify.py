"""Notifications: empty datagrams that mean "something changed, reconcile". They carry no data that could be false."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Iterable, Iterator
from pathlib import Path

MODE = 0o666
"""Every user's server may notify every other: they share the GPUs."""


@contextlib.contextmanager
def _short(folder: Path) -> Iterator[str]:
    """Yield a path to ``folder`` that fits in a socket's address, which has 108 bytes however deep the folder is."""
    descriptor = os.open(folder, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def listen(folder: Path, name: str) -> socket.socket:
    """Make a socket under that name; it never blocks. Whatever has the name already is replaced."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        with _short(folder) as short:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(f"{short}/{name}")  # noqa: PTH108 - a path through a descriptor, no place of its own
            listener.bind(f"{short}/{name}")
            os.chmod(f"{short}/{name}", MODE)  # noqa: PTH101
    except BaseException:
        listener.close()
        raise
    return listener


def drain(listener: socket.socket) -> None:
    """Take what has arrived: one reconcile answers them all."""
    with contextlib.suppress(BlockingIOError):
        for _ in range(256):
            listener.recv(1)


def send(folder: Path, names: Iterable[str]) -> frozenset[str]:
    """Send one to each of these sockets; return the names without a listener."""
    deaf = set()
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC) as sender,
        _short(folder) as short,
    ):
        for name in names:
            try:
                sender.sendto(b"", f"{short}/{name}")
            except OSError as error:
                # Its queue is full: then it is notified already. Forbidden: it is there, but not one of ours.
                if error.errno not in (errno.EAGAIN, errno.ENOBUFS, errno.EACCES, errno.EPERM):
                    deaf.add(name)
    return frozenset(deaf)
