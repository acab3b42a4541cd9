"""Ends processes: those that were found, not others that have their pids by now."""

from __future__ import annotations

import logging
import os
import signal
from collections.abc import Iterable

from jupyter_gpu_node import proc

from ..processes import Process

_log = logging.getLogger(__name__)


def end(processes: Iterable[Process]) -> None:
    """With SIGKILL, which ends stopped ones, too. Whoever is not ours to end is left to its own server."""
    for process in sorted(set(processes)):
        if process.pid == os.getpid():
            continue
        try:
            with proc.meant(process.pid, process.started) as descriptor:
                if descriptor is not None:
                    signal.pidfd_send_signal(descriptor, signal.SIGKILL)
        except ProcessLookupError:
            continue
        except OSError as error:
            _log.warning("Process %s cannot be ended: %s", process.pid, error)
