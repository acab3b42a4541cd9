"""The state directory: one record for each pod, changed under one lock, each file by its pod's server only.

Nothing is trusted before it is checked: links are not followed, a record is a regular file of bounded size, and
the file's owner is its writer. Nothing is flushed to a disk: the state means nothing after the next boot.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import stat
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from jupyter_gpu.common import faults
from jupyter_gpu.common.state_dir import default_path
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import BackendUnavailable

from .record import MAX_BYTES, Record

LOCK_TIMEOUT = 5.0
"""Seconds to wait for the other servers; they hold the lock for about a millisecond."""

_PODS = "pods"
_RECORD = re.compile(r"([0-9a-f]{32})\.json")
_SOCKET = re.compile(r"([0-9a-f]{32})\.sock")
_TEMPORARY = re.compile(r"\.[0-9a-f]{32}\.[0-9a-f]{16}\.new")
_SHARED = stat.S_ISVTX | 0o777
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class RecordEntry(NamedTuple):
    """A record as it was found, and the user whose server wrote it."""

    record: Record
    owner: int


class Contents(NamedTuple):
    """Everything in the directory at one moment."""

    entries: Mapping[str, RecordEntry]
    damaged: Mapping[str, str]
    """Uid of each pod whose record cannot be read, with the reason."""
    sockets: frozenset[str]
    """Uid of each pod that has a socket there."""
    leftovers: tuple[str, ...]
    """Temporary files; under the lock only writers that were killed leave any."""


class StateStore:
    """One state directory. It is opened anew for each lock, so a directory that was wiped meanwhile is made again."""

    def __init__(self, path: Path | None = None, timeout: float = LOCK_TIMEOUT) -> None:
        self.path = path or default_path()
        self.pods = self.path / _PODS
        self._timeout = timeout

    @contextlib.contextmanager
    def locked(self) -> Iterator[Session]:
        """Lock the directory against all others. Raises BackendUnavailable if that fails; then nothing was changed."""
        folder = self._locked_folder()
        try:
            yield Session(folder)
        except OSError as error:
            self._unavailable(error)
        finally:
            os.close(folder)  # ends the lock as well

    def _locked_folder(self) -> int:
        deadline = time.monotonic() + self._timeout
        while True:
            try:
                folder = self._open()
            except OSError as error:
                self._unavailable(error)
            try:
                if _lock(folder, deadline) and self._current(folder):
                    return folder
            except BaseException:
                os.close(folder)
                raise
            os.close(folder)
            if time.monotonic() > deadline:
                raise BackendUnavailable(
                    f"{self.pods} has been locked by another process for {self._timeout:g} seconds, so GPUs can't be "
                    f"shared out now. Try again; `fuser {self.pods}` shows who holds it.",
                    path=str(self.pods),
                )

    def _open(self) -> int:
        """Open the folder of the records; made, with the one around it, where it is missing."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        outer = open_shared(str(self.path), None)
        try:
            return open_shared(_PODS, outer)
        finally:
            os.close(outer)

    def _current(self, folder: int) -> bool:
        """Tell whether the locked folder is still the one under that name: it may have been removed meanwhile."""
        try:
            return os.path.samestat(os.fstat(folder), os.lstat(self.pods))
        except FileNotFoundError:
            return False

    def _unavailable(self, error: OSError) -> NoReturn:
        raise BackendUnavailable(
            f"GPUs can't be shared out: {self.path} can't be used ({error.strerror or error}). "
            "Make room there or correct its permissions, or choose another place with "
            "c.GpuExtension.state_dir, then try again. What you have stays as it is.",
            path=str(self.path),
        ) from error


class Session:
    """The records, while the lock is held."""

    def __init__(self, folder: int) -> None:
        self._folder = folder

    def read(self) -> Contents:
        """Read everything that is there. A file that cannot be read is reported, never an error."""
        entries: dict[str, RecordEntry] = {}
        damaged: dict[str, str] = {}
        leftovers = []
        sockets = set()
        for name in os.listdir(self._folder):  # noqa: PTH208 - of a descriptor
            if match := _RECORD.fullmatch(name):
                try:
                    entries[match[1]] = self._entry(name, match[1])
                except FileNotFoundError:
                    continue
                except (OSError, ValueError) as error:
                    damaged[match[1]] = str(error)
            elif match := _SOCKET.fullmatch(name):
                sockets.add(match[1])
            elif _TEMPORARY.fullmatch(name):
                leftovers.append(name)
        return Contents(entries, damaged, frozenset(sockets), tuple(leftovers))

    def _entry(self, name: str, uid: str) -> RecordEntry:
        descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=self._folder)
        try:
            about = os.fstat(descriptor)
            if not stat.S_ISREG(about.st_mode):
                raise strict.FieldError("It is no regular file.")
            if about.st_size > MAX_BYTES:
                raise strict.OversizeError(f"It has {about.st_size:,} bytes; at most {MAX_BYTES:,} are accepted.")
            record = Record.decode(os.read(descriptor, MAX_BYTES + 1))
        finally:
            os.close(descriptor)
        if record.uid != uid:
            raise strict.FieldError("It is about another pod than its name says.")
        return RecordEntry(record, about.st_uid)

    def write(self, record: Record) -> None:
        """Replace the record in one step: a server killed or out of space meanwhile leaves the old one whole."""
        name = f"{record.uid}.json"
        temporary = f".{record.uid}.{secrets.token_hex(8)}.new"
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(temporary, flags, 0o644, dir_fd=self._folder)
        try:
            try:
                os.fchmod(descriptor, 0o644)  # the umask may be strict, but other users' servers must read it
                text = memoryview(record.encode())
                while text:
                    text = text[os.write(descriptor, text) :]
            finally:
                os.close(descriptor)
            faults.point("write:temporary")
            os.rename(temporary, name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            self.discard(temporary)
            raise

    def remove(self, uid: str) -> bool:
        """Delete a pod's files; return False if they are another user's and may not be deleted."""
        return all([self.discard(f"{uid}.sock"), self.discard(f"{uid}.json")])

    def discard(self, name: str) -> bool:
        """Delete one file; return whether it is gone."""
        try:
            os.unlink(name, dir_fd=self._folder)
        except FileNotFoundError:
            return True
        except (PermissionError, IsADirectoryError):
            return False
        return True

    def set_aside(self, uid: str) -> bool:
        """Keep a damaged record as `<uid>.bad` for people to look at; return whether it is out of the way."""
        try:
            os.rename(f"{uid}.json", f"{uid}.bad", src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except FileNotFoundError:
            return True
        except OSError:  # another user's file, or a folder over an earlier .bad file
            return False
        return True


def open_shared(name: str, parent: int | None) -> int:
    """Open a folder in which every user can make files and remove their own; no link is followed."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(name, 0o700, dir_fd=parent)
        made = os.open(name, _DIRECTORY, dir_fd=parent)
        os.fchmod(made, _SHARED)
        return made
    folder = os.open(name, _DIRECTORY, dir_fd=parent)
    about = os.fstat(folder)
    if os.geteuid() == 0 and (about.st_uid != 0 or stat.S_IMODE(about.st_mode) != _SHARED):
        # The owner of a sticky directory may delete the files of others, so an ordinary user must not own it.
        os.fchown(folder, 0, -1)
        os.fchmod(folder, _SHARED)
    return folder


def _lock(folder: int, deadline: float) -> bool:
    pause = 0.0002
    while True:
        try:
            fcntl.flock(folder, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() + pause > deadline:
                return False
            time.sleep(pause)
            pause = min(pause * 1.5, 0.02)
        else:
            return True


@contextlib.contextmanager
def plain_errors(store: StateStore) -> Any:
    """Put an error of the operating system in words for people."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise BackendUnavailable(
            f"GPUs can't be used now: {error}. What you have stays as it is. If it goes on, look into the server's log "
            f"and at {store.path}.",
            path=str(store.path),
        ) from error
