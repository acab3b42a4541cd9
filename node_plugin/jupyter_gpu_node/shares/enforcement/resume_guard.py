"""Continues stopped processes if this process is killed and never comes back.

Before a process is stopped, a `CleanupProcess` gets its pid and start time. It gets them as messages, not from the file
of stopped processes: a successor of this process writes that file too, and the processes that the successor stops must
stay stopped. Continuing the others at once helps no violator: a successor begins with that anyway, and while there is
none, no share has a turn that could be disturbed.

If the cleanup process is killed together with this process, as with its whole container, the next start continues them.
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.cleanup_process import CleanupProcess
from jupyter_gpu_node.processes.rules.process_id import ProcessId

# the pidfd first, then the check which process it is, as proc.meant does
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


class ResumeGuard:
    """Stops and continues processes as `signals` does, and guards that they resume. It blocks: for one thread."""

    def __init__(self, python: str = sys.executable) -> None:
        self.cleanup_process = CleanupProcess(_ACT, python)
        self._warned = False

    def stop(self, processes: Iterable[ProcessId]) -> None:
        """Stop processes, even if no cleanup process can be started.

        Otherwise a process that exhausts its user's processes or memory could not be stopped. The file lists the
        processes that the next start is to continue.
        """
        wanted = sorted(processes)
        try:
            self.cleanup_process.hold(*map(_named, wanted))
        except OSError as error:
            if not self._warned:
                _log.warning("If this process is killed, what it stopped runs again at its next start only: %s", error)
            self._warned = True
        signals.stop(wanted)

    def resume(self, processes: Iterable[ProcessId]) -> None:
        """Continue processes, whichever process stopped them."""
        wanted = sorted(processes)
        signals.resume(wanted)
        self.cleanup_process.release(*map(_named, wanted))

    def close(self) -> None:
        """End the cleanup process. Processes that are still stopped run again."""
        self.cleanup_process.close()


def _named(process: ProcessId) -> bytes:
    return b"%d %d" % (process.pid, process.start)
