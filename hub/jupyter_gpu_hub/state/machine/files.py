"""The files of a machine: limits, which are read and replaced, and what the process that counts GPU-hours writes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple, TypeVar

from jupyter_gpu.common import admin_file, limits_file
from jupyter_gpu.kube.errors import Conflict, NotFound, Unavailable
from jupyter_gpu.model import strict
from jupyter_gpu.model.limits import machine_accounts, machine_use
from jupyter_gpu.model.limits.machine_accounts import MachineAccounts
from jupyter_gpu.model.limits.machine_use import WrittenUse
from jupyter_gpu_hub.rules.machine.limit_document import Groups, LimitDocument, read

from .clock import boot, since_boot

T = TypeVar("T")

ABSENT = 2.0
"""Seconds after which a file that is gone counts as removed, as for servers: editors replace files by removing them."""
NOT_COUNTED = (
    "GPU-hours of this machine's users are not being counted, so GPUs in use are not known. Root must keep python -m "
    "jupyter_gpu.backends.local.accounting running."
)


class Paths(NamedTuple):
    """The places of the files."""

    limits: Path
    """Root's file with the limits."""
    state: Path
    """The state directory."""
    removed: Path
    """The record of limits that were removed."""

    @property
    def owners(self) -> set[int]:
        """Ids of the users whose files count. Raises `OSError`."""
        return {0, self.state.stat().st_uid} if self.limits.parent == self.state else {0}


class LimitsFile:
    """The file with the limits. Every method raises `KubeError`; all may block, and none changes half of it."""

    def __init__(self, paths: Paths, hub: str, groups: Callable[[], Groups]) -> None:
        self._paths, self._hub, self._groups = paths, hub, groups
        self._there = False
        self._gone: float | None = None

    def read(self) -> LimitDocument:
        """Return what the file says. `Unavailable`: it can't be used, and what it said last holds."""
        try:
            return read(self._text(), self._hub, self._groups())
        except strict.FieldError as error:
            raise Unavailable(0, "Damaged", _damaged(self._paths.limits, error), sent=False) from None

    def change(self, make: Callable[[LimitDocument], LimitDocument]) -> LimitDocument:
        """Write what ``make`` makes of it, under the lock of all writers; return that.

        An editor takes no lock: if the file changed since it was read, nothing is written (`Conflict`).
        """
        path = self._paths.limits
        try:
            with limits_file.locked(path):
                seen = admin_file.signature(path)
                before = self.read()
                after = make(before)
                if after != before:
                    limits_file.replace(path, after.text(), seen)
                    self._there = True
                return after
        except limits_file.Changed:
            raise Conflict(409, "Conflict", f"{path} was changed meanwhile, so nothing was written.") from None
        except OSError as error:
            text = f"{path} can't be written: {error.strerror}. The limits are as they were."
            raise Unavailable(0, "Unwritable", text, sent=False) from None

    def _text(self) -> bytes | None:
        try:
            found = admin_file.read(self._paths.limits, self._paths.owners, limits_file.MAX_BYTES)
        except FileNotFoundError:
            now = time.monotonic()
            self._gone = now if self._gone is None else self._gone
            if self._there and now < self._gone + ABSENT:
                text = f"{self._paths.limits} was there a moment ago: an editor may be replacing it."
                raise Unavailable(0, "Absent", text, sent=False) from None
            self._there = False
            return None
        except NotADirectoryError as error:
            raise strict.FieldError(f"{self._paths.limits} can't be read: {error.strerror}.") from None
        self._there, self._gone = True, None
        return found.text


class RecordFile:
    """A file with one JSON object that only this service writes."""

    def __init__(self, path: Path, most: int) -> None:
        self._path, self._most = path, most

    def read(self) -> dict[str, object] | None:
        """Return the object; ``None``: there is none. Raises `Unavailable`."""
        try:
            found = admin_file.read(self._path, {0, os.geteuid()}, self._most)
            return dict(strict.an_object(strict.loads(found.text, self._most), "The file"))
        except (FileNotFoundError, NotADirectoryError):
            return None
        except strict.FieldError as error:
            text = f"{self._path} can't be used: {error} Correct it, or remove it to begin anew."
            raise Unavailable(0, "Damaged", text, sent=False) from None

    def write(self, value: dict[str, object]) -> None:
        """Replace the object. Raises `Unavailable`."""
        try:
            self._path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
            limits_file.replace(self._path, strict.dumps(value) + "\n")
        except OSError as error:
            text = f"{self._path} can't be written: {error.strerror}."
            raise Unavailable(0, "Unwritable", text, sent=False) from None


def accounts(paths: Paths) -> MachineAccounts:
    """Return the accounts of the machine's users, of now. Raises `NotFound`: they are not being counted."""
    found = _written(paths, limits_file.ACCOUNTS, machine_accounts.MAX_BYTES, machine_accounts.read_accounts)
    if not found.is_current(boot(), since_boot()):
        raise NotFound(404, "NotFound", NOT_COUNTED)
    return found


def use(paths: Paths) -> WrittenUse:
    """Return the machine's GPUs and pods, of now. Raises `NotFound`: no process writes them."""
    found = _written(paths, machine_use.NAME, machine_use.MAX_BYTES, machine_use.read_use)
    if found.boot != boot() or not -machine_accounts.STALE <= since_boot() - found.counted < machine_accounts.STALE:
        raise NotFound(404, "NotFound", NOT_COUNTED)
    return found


def _written(paths: Paths, name: str, most: int, decode: Callable[[bytes], T]) -> T:
    path = paths.state / name
    try:
        return decode(admin_file.read(path, {0, paths.state.stat().st_uid}, most).text)
    except (FileNotFoundError, NotADirectoryError):
        raise NotFound(404, "NotFound", NOT_COUNTED) from None
    except strict.FieldError as error:
        raise NotFound(404, "NotFound", f"{path} can't be used: {error}") from None


def _damaged(path: Path, error: strict.FieldError) -> str:
    return strict.printable(
        f"The limits of this machine can't be used. {path}: {error} What was read last holds until it is corrected.",
        1000,
    )
