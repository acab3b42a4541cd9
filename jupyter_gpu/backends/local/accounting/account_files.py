"""The files of the accounts: one that outlives a boot, and its copy in the state directory, which servers read.

The lasting one is written first. So the copy is never ahead, and a writer that is killed in between loses nothing. A
third file, also in the state directory, has the machine's GPUs and pods for a hub's service; a start writes it anew.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

from jupyter_gpu.common import admin_file, faults, limits_file
from jupyter_gpu.model import strict
from jupyter_gpu.model.limits import machine_use
from jupyter_gpu.model.limits.machine_accounts import MAX_BYTES, MachineAccounts, read_accounts


class Unusable(Exception):
    """The accounts can't be kept; the message is a sentence for administrators."""


class AccountFiles:
    """The files, of which this process is the only writer. Raises `Unusable` on entering if it can't be that."""

    def __init__(self, state: Path, folder: Path) -> None:
        self._lasting = folder / limits_file.ACCOUNTS
        self._copy = state / limits_file.ACCOUNTS
        self._use = state / machine_use.NAME
        self._lock = -1

    def __enter__(self) -> AccountFiles:
        """Become the only writer."""
        folder = self._lasting.parent
        with _worded(folder):
            folder.mkdir(mode=0o755, parents=True, exist_ok=True)
            self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(self._lock)
                raise Unusable(f"Another process keeps the accounts in {folder}.") from None
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """End that."""
        os.close(self._lock)

    def read(self) -> MachineAccounts | None:
        """Return what was written last; ``None``: nothing was. Raises `Unusable` for a file that is damaged."""
        try:
            found = admin_file.read(self._lasting, {0, os.geteuid()}, MAX_BYTES)
            return read_accounts(found.text)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except strict.FieldError as error:
            raise Unusable(
                f"The GPU-hours in {self._lasting} can't be read: {error} Correct the file, or remove it to begin anew."
            ) from None

    def write(self, accounts: MachineAccounts) -> None:
        """Write both files. Raises `Unusable`."""
        text = accounts.encode()
        with _worded(self._lasting):
            limits_file.replace(self._lasting, text)
        faults.point("accounts:kept")
        with _worded(self._copy):
            limits_file.replace(self._copy, text)
        faults.point("accounts:copied")

    def write_use(self, text: str) -> None:
        """Write the file for the service of a hub. Raises `Unusable`."""
        with _worded(self._use):
            limits_file.replace(self._use, text)


@contextlib.contextmanager
def _worded(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise Unusable(f"{path} can't be used: {error.strerror}.") from None
