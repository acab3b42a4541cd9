"""The files of time shares in the state directory; `trust` says which of them are trusted.

The directory belongs to all users of the machine. What an arbiter makes is in a folder that has the name of its user
id and belongs to that user: any other folder is ignored. No link is followed but those that a pod's own server made.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import tempfile
import time
from pathlib import Path

from jupyter_gpu.backends.local.records.store import open_shared
from jupyter_gpu_node.shares.server import paths as share_paths

LOCK = "arbiter.lock"
ARBITERS = "arbiters"
GATES = "gates"
SHORT = 16
"""Letters of a pod's uid in the name of its link."""
OWN = "own"
"""Part of an arbiter's folder that no pod needs."""
NOTIFY_SOCKET = "notify.sock"
LOG = "log"
MAX_LOG = 256 * 1024
"""Bytes: the directory is small on many machines."""
NAMESPACE = "namespace"
"""File that names the namespace of the pids that an arbiter sees."""
PROBLEM = "problem"
"""File with the reason the rules that were set cannot be used; empty if they can."""
MAX_PROBLEM = 1000
SILENCE = 10.0
"""Seconds after which an arbiter that shows no sign of life counts as one that hangs."""

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_ADDRESS = 107 - len("/GPU-00000000-0000-0000-0000-000000000000.sock")
"""Bytes that the path of the folder of a socket may have."""


def open_lock(state: Path) -> int:
    """Return a descriptor of the lock file, made where it is missing: to be locked, never to be written."""
    path = state / LOCK
    while True:
        with contextlib.suppress(FileNotFoundError):
            return _regular(os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC))
        with contextlib.suppress(FileExistsError):
            lock = os.open(path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, 0o644)
            os.fchmod(lock, 0o644)  # the umask may be strict, but every user's server waits for it
            return lock


def is_current(state: Path, lock: int) -> bool:
    """Tell whether that is the lock file still: a user may have removed it, or everything."""
    try:
        return os.path.samestat(os.fstat(lock), os.lstat(state / LOCK))
    except OSError:
        return False


def _regular(descriptor: int) -> int:
    if stat.S_ISREG(os.fstat(descriptor).st_mode):
        return descriptor
    os.close(descriptor)
    raise OSError(f"{LOCK} is no regular file")


# --- an arbiter's own folder ------------------------------------------------------------------------------------------


def home(state: Path, user: int | None = None) -> Path:
    """Return the folder of that user's arbiters, or of ours."""
    return state / ARBITERS / str(os.geteuid() if user is None else user)


def make_home(state: Path) -> None:
    """Make our folder and the part that no pod needs; never the state directory. Raises `OSError`."""
    outer = os.open(state, _FOLDER)
    try:
        os.close(open_shared(GATES, outer))
        arbiters = open_shared(ARBITERS, outer)
    finally:
        os.close(outer)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(str(os.geteuid()), 0o755, dir_fd=arbiters)
        folder = open_home(state)
    finally:
        os.close(arbiters)
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(OWN, 0o755, dir_fd=folder)
        own = os.open(OWN, _FOLDER, dir_fd=folder)
        os.fchmod(own, 0o755)
        os.close(own)
    finally:
        os.close(folder)


def open_home(state: Path) -> int:
    """Open our folder. Raises `PermissionError` if others can change it, and `OSError`."""
    folder = os.open(home(state), _FOLDER)
    about = os.fstat(folder)
    if about.st_uid == os.geteuid() and not about.st_mode & 0o022:
        os.fchmod(folder, 0o755)  # the umask may be strict, but programs of other users find their sockets there
        return folder
    os.close(folder)
    raise PermissionError(f"{home(state)} can be changed by others")


def open_log(state: Path) -> int:
    """Open the log for the next arbiter; a long log begins anew."""
    folder = open_home(state)
    try:
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        log = _regular(os.open(LOG, flags, 0o644, dir_fd=folder))
    finally:
        os.close(folder)
    if os.fstat(log).st_size > MAX_LOG:
        os.ftruncate(log, 0)
    return log


# --- what an arbiter says of itself -----------------------------------------------------------------------------------


def beat(own: Path) -> None:
    """Give a sign of life: the time of the notify socket, by the clock that cannot be set."""
    now = time.monotonic_ns()
    os.utime(own / NOTIFY_SOCKET, ns=(now, now))


def report_problem(own: Path, problem: str) -> None:
    """Write the problem for servers, which never see a part of it. Raises `OSError`."""
    folder = os.open(own, _FOLDER)
    try:
        share_paths.replace(folder, PROBLEM, problem.encode())
    finally:
        os.close(folder)


# --- where a pod's programs find their sockets ------------------------------------------------------------------------


def gate(state: Path, pod: str) -> Path:
    """Return the link for that pod: short enough for an address of 108 bytes, wherever the state directory is."""
    inside = state / GATES / pod[:SHORT]
    if len(os.fsencode(inside)) <= _ADDRESS:
        return inside
    short = Path(tempfile.gettempdir())
    name = f"jupyter-gpu-{pod[:SHORT]}"
    return (short if len(os.fsencode(short / name)) <= _ADDRESS else Path("/tmp")) / name  # noqa: S108 - a random name


def sockets(state: Path, user: int, pod: str) -> Path:
    """Return the folder where that user's arbiter has the sockets and files of a pod."""
    return home(state, user) / pod / "shares"


def link_to(link: Path, target: Path) -> None:
    """Have ``link`` lead there, in one step. Raises `OSError`."""
    with contextlib.suppress(OSError):
        if os.readlink(link) == str(target):  # noqa: PTH115 - compared as text
            return
    draft = link.with_name(f".{link.name}.{secrets.token_hex(8)}")
    draft.symlink_to(target)
    try:
        draft.replace(link)
    except OSError:
        draft.unlink(missing_ok=True)
        raise


def remove_link(link: Path) -> None:
    """Remove the link, if it is ours."""
    with contextlib.suppress(OSError):
        if is_our_link(link.lstat()):
            link.unlink()


def is_our_link(about: os.stat_result) -> bool:
    """Tell whether it is a link, and this user's."""
    return stat.S_ISLNK(about.st_mode) and about.st_uid == os.geteuid()
