"""Processes as the records identify them, and the boot and the pid namespace in which an identity means something."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.process_id import ProcessId


def identity(found: proc.ProcessInfo) -> ProcessId:
    """Return the identity of a process that a scan of `/proc` found."""
    return ProcessId(found.pid, found.start)


def process_json(process: ProcessId) -> dict[str, Any]:
    """Return the JSON object of a process: ``{"pid", "started"}``."""
    return {"pid": process.pid, "started": process.start}


def read_process(value: Any, key: str = "process") -> ProcessId:
    """Parse and check such an object; raises `FieldError`."""
    body: Mapping[str, Any] = strict.an_object(value, key)
    return ProcessId(
        pid=strict.required(body, "pid", strict.integer(1, 2**31 - 1)),
        start=strict.required(body, "started", strict.integer(0, strict.MAX_GENERATION)),
    )


def identify(pid: int) -> ProcessId | None:
    """Return the process that has this pid now; ``None`` if none is visible."""
    start = proc.process_start_time(pid)
    return None if start is None else ProcessId(pid, start)


def alive(process: ProcessId) -> bool:
    """Tell whether it still runs; where `/proc` hides other users' processes, whether any process has its pid."""
    return proc.alive(process.pid, process.start) or _hidden(process.pid)


def users(pid: int) -> frozenset[int]:
    """Return the user ids that the process has or can take again; empty if the process is not visible.

    Not the owner of its entry in `/proc`: that is root for every process that changed its user.
    """
    with contextlib.suppress(OSError):
        for line in Path(f"/proc/{pid}/status").read_text(errors="replace").splitlines():
            if line.startswith("Uid:"):
                return frozenset(map(int, line.split()[1:4]))
    return frozenset()


FIRST_NAMESPACE = 0xEFFFFFFC
"""Number of the machine's own pid namespace (``PROC_PID_INIT_INO``, linux/proc_ns.h)."""


def _hidden(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except PermissionError:  # of another user: it exists, and if /proc does not show it, it is mounted with hidepid
        return not Path(f"/proc/{pid}").exists()
    except ProcessLookupError:
        return False
    return False


@cache
def boot() -> str:
    """Return the id of this boot, another one at each start of the machine: a record of another boot holds nothing."""
    return proc.boot_id()


@cache
def namespace() -> int:
    """Return the number of the pid namespace: pids of another one mean nothing here."""
    return Path("/proc/self/ns/pid").stat().st_ino


def since_boot() -> float:
    """Return the seconds since boot, sleep included: a clock that cannot be set, and that all servers share."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
