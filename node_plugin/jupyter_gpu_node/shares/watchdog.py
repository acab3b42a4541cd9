"""Nobody stays stopped because whoever stopped him was killed, and never comes back.

Before a process is stopped, a :class:`~jupyter_gpu_node.deputy.Deputy` is told of it, by pid and start. It learns that
from messages, not from the file of who is stopped: whoever comes after this process writes that file too, and those
whom *he* stops must stay so. To continue the others at once frees no offender: a successor begins with just that, and
while there is none nobody has a turn that could be disturbed.

One who is killed together with this process, with its whole container, can do nothing: then the next start does.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from ..deputy import Deputy
from . import signals
from .process import Process

# pidfd first, then the look who that is: as proc.meant does it
_ACT = """
import os, signal
def act(process):
    pid, started = map(int, process.split())
    descriptor = os.pidfd_open(pid)
    with open(f"/proc/{pid}/stat", "rb") as file:
        if int(file.read().rpartition(b")")[2].split()[19]) == started:
            signal.pidfd_send_signal(descriptor, signal.SIGCONT)
"""
_log = logging.getLogger(__name__)


class Watchdog:
    """Stops processes and continues them, as :mod:`.signals` does, under such watch. It blocks: for one thread."""

    def __init__(self, python: str = sys.executable) -> None:
        self.deputy = Deputy(_ACT, python)
        self._warned = False

    def stop(self, processes: Iterable[Process]) -> None:
        """Also where nobody can be found to watch.

        Else who uses up the processes or the memory of his user could not be stopped any more. The file says whom the
        next start is to continue.
        """
        wanted = sorted(processes)
        try:
            self.deputy.hold(*map(_named, wanted))
        except OSError as error:
            if not self._warned:
                _log.warning("If this process is killed, whom it stopped runs again at its next start only: %s", error)
            self._warned = True
        signals.stop(wanted)

    def resume(self, processes: Iterable[Process]) -> None:
        """Let them run again, whoever had stopped them."""
        wanted = sorted(processes)
        signals.resume(wanted)
        self.deputy.release(*map(_named, wanted))

    def close(self) -> None:
        """End the watch. Whoever is stopped still runs again."""
        self.deputy.close()


def _named(process: Process) -> bytes:
    return b"%d %d" % (process.pid, process.started)
