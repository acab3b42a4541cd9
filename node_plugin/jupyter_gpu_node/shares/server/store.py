"""The files of all shares of a node. Copies below the state directory are read again; those for pods are only written.

Everything here blocks, so a server calls it in a thread of its own. A file that cannot be read costs the share its
bank, and its debt only if that cannot be read either; the log says so. A failed write is repeated at the next change.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from jupyter_gpu_node.shares.rules import share_file
from jupyter_gpu_node.shares.rules.share_file import Savings, ShareFile, ShareKey
from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.rules.turns.timing import LIMITS

from . import paths

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ShareEntry:
    """The contents to be written for one share."""

    gpu: str
    pod: str
    directory: Path
    """The directory that the pod sees."""
    file: ShareFile
    deposits: tuple[Deposit, ...]
    now: int
    """Present time, by the clock of the deposits."""
    public: bool = True
    """Whether the copy that the pod sees is to be written."""
    own: bool = True
    """Whether the own copy is to be written."""


class ShareStore:
    """The files of shares. ``state``: a directory that no pod sees, with the own copies below ``shares``, by GPU."""

    def __init__(self, state: Path) -> None:
        self._state = state

    def load(self, gpu: str, pod: str) -> Savings | None:
        """Return the bank and the debt from the own copy; None where there is none, or neither can be read."""
        name, text = paths.file_name(pod), b""
        try:
            with paths.opened(self._state, paths.checked(gpu)) as folder:
                text = paths.read(folder, name, share_file.MAX_BYTES)
            return share_file.decode_savings(text)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            _log.warning("The bank of the share of pod %s on %s begins empty: its file is bad: %s", pod, gpu, error)
            return share_file.decode_debt(text)

    def write(self, entries: Iterable[ShareEntry]) -> bool:
        """Write the wanted copies of each; return whether all could be written."""
        written = [self._write(entry) for entry in entries]
        return all(written)

    def owe(self, gpu: str, pod: str, amount: int, milli: int, wall: int) -> None:
        """Write what a closed share owes in the place of the own copy."""
        try:
            with paths.opened(self._state, paths.checked(gpu)) as folder:
                paths.replace(folder, paths.file_name(pod), share_file.encode_debt(amount, milli, wall))
        except OSError as error:
            _log.warning("What the share of pod %s on %s owes cannot be written: %s", pod, gpu, error)

    def forget(self, gpu: str, pod: str) -> None:
        """Remove the own copy."""
        try:
            with paths.opened(self._state, paths.checked(gpu)) as folder:
                paths.discard(folder, paths.file_name(pod))
        except OSError as error:
            _log.warning("The file of the share of pod %s on %s cannot be removed: %s", pod, gpu, error)

    def withdraw(self, gpu: str, pod: str, directory: Path) -> None:
        """Remove what the pod sees, the socket too."""
        try:
            paths.forget(directory, gpu)
        except OSError as error:
            _log.warning("What pod %s sees of its share of %s cannot be removed: %s", pod, gpu, error)

    def begin(self, known: Collection[ShareKey]) -> dict[ShareKey, Savings]:
        """Return the savings in the own copies that an earlier server left.

        Copies of shares that ended while no server ran are removed, if they are so old that nothing in them can be
        spent, and nothing is owed: a share may be known a little later than others. ``known`` are those known by now.
        """
        now = time.time()
        found = {}
        for key, written in self._copies():
            savings = self.load(*key)
            owes = savings is not None and share_file.owed(savings, int(now * 1000)) > 0
            if key not in known and not owes and written < now - LIMITS["expiry"][1] / 1e6:
                self.forget(*key)
            elif savings:
                found[key] = savings
        return found

    def _copies(self) -> list[tuple[ShareKey, float]]:
        """Return all readable own copies, with the times at which they were written."""
        found = []
        for gpu in filter(paths.is_name, self._names()):
            for name in self._names(gpu):
                pod = name.removesuffix(".json")
                if name != pod and paths.is_name(pod):
                    with contextlib.suppress(OSError), paths.opened(self._state, gpu) as folder:
                        found.append(((gpu, pod), os.stat(name, dir_fd=folder, follow_symlinks=False).st_mtime))
        return found

    def _names(self, *gpu: str) -> list[str]:
        try:
            with paths.opened(self._state, *gpu) as folder:
                return [name for name in os.listdir(folder) if not name.startswith(".")]  # noqa: PTH208 - of a descriptor
        except OSError as error:
            _log.warning("Banks begin empty, as %s cannot be read: %s", "/".join((str(self._state), *gpu)), error)
            return []

    def _write(self, entry: ShareEntry) -> bool:
        try:
            if entry.own:
                file = replace(entry.file, deposits=share_file.saved(entry.deposits, entry.now))
                with paths.opened(self._state, paths.checked(entry.gpu)) as folder:
                    paths.replace(folder, paths.file_name(entry.pod), share_file.encode(file, public=False))
            if entry.public:
                with paths.opened(entry.directory) as folder:
                    paths.replace(folder, paths.file_name(entry.gpu), share_file.encode(entry.file, public=True))
        except OSError as error:
            _log.warning("The file of the share of pod %s on %s cannot be written: %s", entry.pod, entry.gpu, error)
            return False
        return True
