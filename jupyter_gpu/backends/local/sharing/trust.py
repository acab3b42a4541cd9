"""The arbiter to trust, and readers of its files, which refuse what another user can have made or changed.

Every user may listen in a folder of their own and claim to hand out GPU time. Trusted are, in this order, the arbiters
of root, of the owner of the state directory (who can remove everything in it anyhow), and of our own user. Of all
others only the one that has the file `SERVING` locked, as the kernel says (fcntl(2)): without root there may be no
better one, and programs are served by it; but its messages are shown as those of its user, and it revokes no share.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import stat
import struct
import time
from collections.abc import Callable, Collection, Iterator
from pathlib import Path

from jupyter_gpu.backends.local.processes.identity import namespace, users
from jupyter_gpu.backends.local.records import notify
from jupyter_gpu.model import strict

from . import files

SERVING = "arbiter.serving"
"""Locked by the arbiter itself, which the other lock's first owner is not: anybody may try, and one has it."""
_LOCK = struct.Struct("@hhqqi0q")  # struct flock
_USER = re.compile(r"[0-9]{1,10}")
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


# --- files of one user ------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def opened(state: Path, user: int, *inner: str) -> Iterator[int]:
    """Open a folder of that user's arbiters; see `within`. Raises `OSError`."""
    arbiters = os.open(state / files.ARBITERS, _FOLDER)
    with within(arbiters, user, str(user), *inner) as folder:
        yield folder


@contextlib.contextmanager
def within(outer: int, user: int, *inner: str) -> Iterator[int]:
    """Open a folder in ``outer``, which is closed: of that user alone, as each one on the way to it.

    No link is followed. Raises `PermissionError` if others can change one of them, and `OSError`.
    """
    folder = outer
    try:
        for name in inner:
            found = os.open(name, _FOLDER, dir_fd=folder)
            os.close(folder)
            folder = found
            _check(folder, name, user, stat.S_ISDIR)
        yield folder
    finally:
        os.close(folder)


def read(folder: int, name: str, user: int, most: int) -> bytes:
    """Read a regular file of that user alone, of at most so many bytes; no link is followed.

    Raises `PermissionError` if others can change it, and `OSError`.
    """
    descriptor = os.open(name, _FILE, dir_fd=folder)
    try:
        _check(descriptor, name, user, stat.S_ISREG)
        text = os.read(descriptor, most + 1)
    finally:
        os.close(descriptor)
    if len(text) > most:
        raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", name)
    return text


def _check(descriptor: int, name: str, user: int, kind: Callable[[int], bool]) -> None:
    about = os.fstat(descriptor)
    if not kind(about.st_mode):
        raise PermissionError(errno.EPERM, f"it is no {'folder' if kind is stat.S_ISDIR else 'regular file'}", name)
    if about.st_uid != user:
        raise PermissionError(errno.EPERM, f"it is of user {about.st_uid}, and should be of user {user}", name)
    if about.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise PermissionError(errno.EPERM, "others than its owner can change it", name)


# --- users ------------------------------------------------------------------------------------------------------------


def trusted_users(state: Path) -> tuple[int, ...]:
    """Return the users whose arbiter may decide about our shares, the first that has one before the others."""
    with contextlib.suppress(OSError):
        return 0, state.stat().st_uid, os.geteuid()
    return 0, os.geteuid()


def choose(listening: Collection[int], above: Collection[int], serving: Collection[int]) -> int | None:
    """Choose the listening user to follow: the first of those ``above`` all others, else the lock's holder. Pure."""
    first = next((user for user in above if user in listening), None)
    return first if first is not None else min(set(listening) & set(serving), default=None)


def arbiter_user(state: Path) -> int | None:
    """Return the user of the arbiter to follow, which is notified as well; None where there is none."""
    return choose(listening(state), trusted_users(state), serving(state))


def listening(state: Path) -> frozenset[int]:
    """Return the users with a listener where their arbiter would be; each of them is notified."""
    with contextlib.suppress(OSError):
        arbiters = os.open(state / files.ARBITERS, _FOLDER)
        try:
            names = os.listdir(arbiters)  # noqa: PTH208 - of a descriptor
        finally:
            os.close(arbiters)
        return frozenset(int(name) for name in names if _USER.fullmatch(name) and _listens(state, int(name)))
    return frozenset()


def _listens(state: Path, user: int) -> bool:
    try:
        with opened(state, user) as home:
            return not notify.send(Path(f"/proc/self/fd/{home}/{files.OWN}"), [files.NOTIFY_SOCKET])
    except OSError:
        return False


def serving(state: Path) -> frozenset[int]:
    """Return the user of the process that has `SERVING` locked, as far as that can be told."""
    pid = server(state)
    return users(pid) if pid else frozenset()


def server(state: Path) -> int:
    """Return the pid of that process, which lives as long as it has the lock; 0: none has it, or none that we see."""
    with contextlib.suppress(OSError, struct.error):
        descriptor = os.open(state / SERVING, _FILE)
        try:
            asked = _LOCK.pack(fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, *_, pid = _LOCK.unpack(fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))
        finally:
            os.close(descriptor)
        return int(pid) if kind == fcntl.F_WRLCK and pid > 0 else 0
    return 0


class ServingLock:
    """The arbiter's side of it: one for each process, which loses the lock by closing any descriptor of that file."""

    def __init__(self, state: Path) -> None:
        self._path = state / SERVING
        self._descriptor = -1

    def keep(self) -> bool:
        """Try, in a thread, now and then, to have the lock. An arbiter without it is trusted by fewer users."""
        try:
            if not self._is_current():  # it was removed
                self.close()
                self._descriptor = _open_serving(self._path)
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return False
        return True

    def _is_current(self) -> bool:
        with contextlib.suppress(OSError):
            return self._descriptor >= 0 and os.path.samestat(os.fstat(self._descriptor), self._path.lstat())
        return False

    def close(self) -> None:
        """Free the lock."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
        self._descriptor = -1


def _open_serving(path: Path) -> int:
    flags = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    with contextlib.suppress(FileExistsError):
        made = os.open(path, flags | os.O_CREAT | os.O_EXCL, 0o666)
        os.fchmod(made, 0o666)  # the next arbiter has to lock it, which takes the right to write
        return made
    found = os.open(path, flags)
    if stat.S_ISREG(os.fstat(found).st_mode):
        return found
    os.close(found)
    raise OSError(errno.EINVAL, "it is no regular file", str(path))


# --- what it says -----------------------------------------------------------------------------------------------------


def silence(state: Path, user: int) -> float:
    """Return the seconds since the last sign of life of that user's arbiter."""
    try:
        with opened(state, user, files.OWN) as own:
            last = os.stat(files.NOTIFY_SOCKET, dir_fd=own, follow_symlinks=False).st_mtime_ns
    except OSError:
        return float("inf")
    return (time.monotonic_ns() - last) / 1e9


def sees_us(state: Path, user: int) -> bool:
    """Tell whether that user's arbiter sees our pids; one that does not say counts as one that does."""
    try:
        with opened(state, user, files.OWN) as own:
            return read(own, files.NAMESPACE, user, 32) == str(namespace()).encode()
    except OSError:
        return True


def problem(state: Path, user: int) -> str:
    """Return the problem that user's arbiter reports about the rules that were set; empty: nothing is wrong."""
    try:
        with opened(state, user, files.OWN) as own:
            text = read(own, files.PROBLEM, user, 4 * files.MAX_PROBLEM)
    except OSError:
        return ""
    return strict.printable(text.decode(errors="replace"), files.MAX_PROBLEM) if text else ""
