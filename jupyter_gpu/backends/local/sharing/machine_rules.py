"""The rules of sharing of this machine, as its administrator has set them: one file, read again with the records.

    /etc/jupyter/jupyter_gpu_shares.json    root's; where it is, it alone counts
    <state>/shares.json                     without that one: of root, or of the owner of the state directory

The arbiter serves all users, and runs as whichever was first: so what belongs to that user does not count for it alone.
What was read last and could be used is kept by the arbiter (`last_rules`), for the next one.
"""

from __future__ import annotations

import contextlib
import logging
import socket
from pathlib import Path
from typing import TYPE_CHECKING

from jupyter_gpu.common import admin_file, faults, settings_file
from jupyter_gpu.model import strict
from jupyter_gpu_node.shares.rules.settings import ShareSettings

from . import files, last_rules
from .last_rules import LastRules

if TYPE_CHECKING:
    from jupyter_gpu_node.shares.rules import gpu_settings

MACHINE = Path("/etc/jupyter/jupyter_gpu_shares.json")
NAME = "shares.json"
"""Name of the file in the state directory, which is gone after a reboot on most machines."""
KEY = "shares"
"""Name of the whole in errors, as in the chart of the cluster."""
NOTHING = b"{}"
SETTLE = 10
"""Seconds in which every server has heard that shares are enforced again, and gives new programs the gate."""
POINTS = (
    "shares:rules-read",  # new rules are read, the copy has the old ones
    "shares:rules-kept",  # the copy has the new ones, which do not hold yet
)
"""Points at which a test can kill an arbiter (`faults`)."""
_KEPT = "{what} hold until it is corrected: then it is read by itself."
_log = logging.getLogger(__name__)


class MachineRules:
    """The rules of one state directory. Where a file cannot be used, what held last holds, and ``problem`` says why.

    ``keeps``: the folder of an arbiter's own files; without it they are only read, as a server does it.
    """

    def __init__(self, state: Path, machine: Path = MACHINE, *, keeps: Path | None = None) -> None:
        self._state = state
        self._machine = machine
        self._keeps = keeps
        self._last: LastRules | None = None
        self.settings = ShareSettings()
        self.problem = ""

    @property
    def since(self) -> int:
        """Clock ticks after boot from which time shares are enforced: programs that are older may have no gate."""
        return self._last.since if self._last else 0

    def of(self, gpu: str) -> gpu_settings.GpuRules:
        """Return the rules of one GPU of this host."""
        from jupyter_gpu_node.shares.rules import gpu_settings  # only the arbiter needs it, no server at its start

        return gpu_settings.of(self.settings, socket.gethostname(), gpu)

    def reload(self) -> bool:
        """Read the file; return whether other rules hold from now on. To be called in a thread."""
        before = self.settings
        begins = self._last is None
        last = self._last or self._recalled()
        self._last = self._last or last
        try:
            path, text = self._found()
            if begins or last is None or text != last.text:
                self._set(parse(text, str(path)), text, last)
            self.problem = ""
        except strict.FieldError as error:
            kept = _KEPT.format(what="The rules that held last" if last else "The defaults")
            self.problem = strict.printable(
                f"The rules of time shares can't be used. {error} {kept}", files.MAX_PROBLEM
            )
            if begins and last:
                self.settings = parse(last.text, "what was kept")
        return self.settings != before

    def _set(self, found: ShareSettings, text: bytes, last: LastRules | None) -> None:
        """Keep new rules before they hold: after a kill in between, the next arbiter reads them again."""
        enforced = last is None or parse(last.text, "what was kept").enforce
        again = found.enforce and not enforced
        since = last_rules.now(SETTLE) if again else last.since if last else 0
        self._last = LastRules(text, since)
        if self._keeps:
            faults.point(POINTS[0])
            try:
                last_rules.keep(self._keeps, self._last)
            except OSError as error:
                _log.warning("The next process that hands out GPU time may not know the rules: %s", error)
            faults.point(POINTS[1])
        self.settings = found

    def _recalled(self) -> LastRules | None:
        """Return the newest rules that can be used, of those kept by arbiters that may decide about us."""
        for one in last_rules.recall(self._state):
            with contextlib.suppress(strict.FieldError):
                parse(one.text, "what was kept")
                return one
        return None

    def _found(self) -> tuple[Path, bytes]:
        """Return the file that counts and its text; if there is none, nothing is set."""
        path = self._state / NAME
        with _missing():
            return self._machine, _text(self._machine, {0})
        with _missing():
            return path, _text(path, {0, self._state.stat().st_uid})
        return path, NOTHING


def _missing() -> contextlib.AbstractContextManager[None]:
    return contextlib.suppress(FileNotFoundError, NotADirectoryError)


def _text(path: Path, owners: set[int]) -> bytes:
    return admin_file.read(path, owners, settings_file.MAX_BYTES).text


def parse(text: bytes, where: str) -> ShareSettings:
    """Parse such a file; raises `FieldError`."""
    if text == NOTHING:
        return ShareSettings()
    from jupyter_gpu_node.shares.rules import gpu_settings  # most machines set nothing, and a server must start fast

    try:
        return gpu_settings.read(strict.loads(text, settings_file.MAX_BYTES), KEY)
    except strict.FieldError as error:
        raise strict.FieldError(f"{where}: {error}", error.field) from None
