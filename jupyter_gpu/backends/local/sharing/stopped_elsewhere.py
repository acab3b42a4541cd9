"""The processes that arbiters have stopped, by their own files. Only what lets them run again needs it."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path

from jupyter_gpu.backends.local.processes.identity import boot
from jupyter_gpu.model import strict
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.enforcement import stopped_processes
from jupyter_gpu_node.shares.rules.violations import violation_records

from . import files, records, trust

VIOLATIONS = "violations.json"
"""The arbiter's own file of violations."""
_USER = re.compile(r"[0-9]{1,10}")


def stopped(state: Path) -> frozenset[ProcessId]:
    """Return the processes that arbiters of any user have stopped, as far as their own files say so."""
    found: frozenset[ProcessId] = frozenset()
    for user in records.names(state / files.ARBITERS, _USER):
        with contextlib.suppress(OSError, ValueError):
            found |= stopped_by(state, int(user))
    return found


def stopped_by(state: Path, user: int) -> frozenset[ProcessId]:
    """Return the processes that arbiters of that user have stopped. Raises `OSError`, `ValueError`."""
    with trust.opened(state, user, files.OWN) as own:
        text = trust.read(own, VIOLATIONS, user, stopped_processes.MAX_BYTES)
    body = strict.an_object(strict.loads(text, stopped_processes.MAX_BYTES), "The record of violations")
    if body.get("boot") != boot():  # others may have their pids by now
        return frozenset()
    states = (violation_records.from_plain(state) for state in strict.required(body, "gpus", strict.an_object).values())
    return frozenset(ProcessId(p.pid, p.start) for state in states for one in state.values() for p in one.stopped)
