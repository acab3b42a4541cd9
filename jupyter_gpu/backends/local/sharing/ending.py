"""Ends processes: those that were found, not others that have their pids by now."""

from __future__ import annotations

import os
from collections.abc import Iterable

from jupyter_gpu_node.shares import offences, stopping

from ..processes import Process


def end(processes: Iterable[Process]) -> None:
    """All of them but this one. Whoever is not ours to end is left to its own server."""
    stopping.end({offences.Process(one.pid, one.started) for one in processes if one.pid != os.getpid()})
