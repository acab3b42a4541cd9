"""The watchdog of stopped processes: none stays stopped because this process was killed and never comes back.

Before a process is stopped, a `Deputy` learns its pid and start. It learns them from
messages, not from the file of stopped processes: a successor of this process writes that file too, and the processes
that the successor stops must stay so. To continue the others at once frees no offender: a successor begins with just
that, and while there is none no share has a turn that could be disturbed.

A deputy that is killed together with this process, with its whole container, can do nothing: then the next start does.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.cleanup_process import Deputy
from jupyter_gpu_node.processes.rules.process_id import ProcessId

# pidfd first, then the look which process that is: as proc.meant does it
_ACT = """
import os, signal
def act(process):
    pid, started = map(int, process.split())
    descriptor = os.pidfd_open(pid)
    with open(f"/proc/{pid}/stat", "rb") as file:
        state, *fields = file.read().rpartition(b")")[2].split()
    with open(f"/proc/{pid}/status", "rb") as file:
        waiting = [int(line.split()[1], 16) for line in file if line.startswith((b"SigPnd:", b"ShdPnd:"))]
    twice = state == b"T" and any(one & 0x3c0000 for one in waiting)  # by its user, too: signals 19 to 22
    if int(fields[18]) == started and not twice:
        signal.pidfd_send_signal(descriptor, signal.SIGCONT)
"""
_log = logging.getLogger(__name__)


class Watchdog:
    """The watchdog: stops and continues processes as `signals` does, watched. It blocks: for one thread."""

    def __init__(self, python: str = sys.executable) -> None:
        self.deputy = Deputy(_ACT, python)
        self._warned = False

    def stop(self, processes: Iterable[ProcessId]) -> None:
        """Stop processes, even if no deputy can be started.

        Else a process that uses up its user's processes or memory could not be stopped any more. The file says which
        processes the next start is to continue.
        """
        wanted = sorted(processes)
        try:
            self.deputy.hold(*map(_named, wanted))
        except OSError as error:
            if not self._warned:
                _log.warning("If this process is killed, whom it stopped runs again at its next start only: %s", error)
            self._warned = True
        signals.stop(wanted)

    def resume(self, processes: Iterable[ProcessId]) -> None:
        """Let them run again, whichever process had stopped them."""
        wanted = sorted(processes)
        signals.resume(wanted)
        self.deputy.release(*map(_named, wanted))

    def close(self) -> None:
        """End the watch. Processes that are still stopped run again."""
        self.deputy.close()


def _named(process: ProcessId) -> bytes:
    return b"%d %d" % (process.pid, process.start)
