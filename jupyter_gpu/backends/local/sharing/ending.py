"""Signals that end processes or resume stopped ones, never others that have their pids by now."""

from __future__ import annotations

import os
from collections.abc import Iterable

from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.rules.process_id import ProcessId


def end(processes: Iterable[ProcessId]) -> None:
    """End all of them but this one. Those that are not ours to end are left to their own server."""
    signals.end(one for one in processes if one.pid != os.getpid())


def resume(processes: Iterable[ProcessId]) -> None:
    """Resume them; one that has ended, or runs, is left alone."""
    signals.resume(processes)
