"""Signals that stop processes, let them run again, and end them. It blocks: for a thread.

A pid that was given to another process is never signalled (`open_pidfd`).
"""

from __future__ import annotations

import logging
import signal
from collections.abc import Iterable

from jupyter_gpu_node.processes.rules.process_id import ProcessId

from . import proc

_log = logging.getLogger(__name__)


def stop(processes: Iterable[ProcessId]) -> frozenset[ProcessId]:
    """Stop processes; return those that got the signal."""
    return frozenset(process for process in sorted(processes) if _send(process, signal.SIGSTOP))


def resume(processes: Iterable[ProcessId]) -> None:
    """Resume processes; one that has ended, or that its user stopped as well, is left alone."""
    for process in sorted(processes):
        if not proc.stop_pending(process.pid):
            _send(process, signal.SIGCONT)


def end(processes: Iterable[ProcessId]) -> None:
    """Kill processes, stopped ones too."""
    for process in sorted(processes):
        _send(process, signal.SIGKILL)


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this pid now; None if there is none."""
    start = proc.process_start_time(pid)
    return None if start is None else ProcessId(pid, start)


def still_there(processes: Iterable[ProcessId]) -> frozenset[ProcessId]:
    """Return those that have not ended."""
    return frozenset(process for process in processes if identify(process.pid) == process)


def stopped(processes: Iterable[ProcessId]) -> frozenset[ProcessId]:
    """Return those that were stopped, are held by a debugger, or are about to end."""
    return frozenset(process for process in processes if proc.all_stopped(process.pid, process.start))


def _send(process: ProcessId, number: signal.Signals) -> bool:
    try:
        with proc.open_pidfd(process.pid, process.start) as descriptor:
            if descriptor is None:
                return False
            signal.pidfd_send_signal(descriptor, number)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError) as error:
        _log.warning("Process %s cannot be sent %s: %s", process.pid, number.name, error)
        return False
    return True
