"""Places where a test can kill this process, between all steps of a resize.

``JUPYTER_GPU_CRASH_AT=<point>`` ends the process with SIGKILL when it gets there, as a power cut or the out-of-memory
killer would: no handler runs, nothing is flushed. Unset, a point costs one dict look-up.
``JUPYTER_GPU_CRASH_AT=@<file>``: the file names the point, whenever there is one. The process removes the file before
it dies, so that the one started in its place lives.
"""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Final

VARIABLE: Final = "JUPYTER_GPU_CRASH_AT"

POINTS: Final = (
    "start:recorded",  # the record is there, the process is not in its group yet
    "start:guarded",  # the process is in its group and can open nothing, the record does not tell of it yet
    "write:temporary",  # the new text is in a temporary file, not yet under its name
    "decide:recorded",  # the wish and what was decided are written, nothing is applied
    "rules:applied",  # the device rules are in force, `attached` still has the old state
    "scan:done",  # /proc was searched, its result is not written
    "attach:recorded",  # `attached` is written, and not published yet
    "stop:released",  # everything was given back, the server is still in its group
    "stop:left",  # the server left its group, the record is still there
    "reap:emptied",  # the group of a dead pod is removed, its record is not
)
"""All points, so that tests can go through them one by one."""

SCHEDULER_POINTS: Final = (
    "scheduler:decided",  # a change of `allocated` is decided, and not written yet
    "scheduler:written",  # `allocated` is written, this process does not know it yet
    "scheduler:reserved",  # a new pod's GPUs are chosen, the pod is not bound
    "scheduler:account",  # the account of an owner is made, and says nothing yet
    "scheduler:ending",  # the pod of a preemptible Job is due to end, and is not asked to yet
    "scheduler:bound",  # the pod is bound, kube-scheduler has no answer yet
)
"""The points of the scheduler."""

WORKER_POINTS: Final = (
    "workers:told",  # the status of a notebook's workers is written, nothing is created or removed yet
    "workers:creating",  # a worker pod is due, and not created yet
    "workers:created",  # it is created, this process does not know it yet
    "workers:removing",  # a worker pod is due to go, and is still there
)
"""The points of the worker controller."""

ACCOUNT_POINTS: Final = (
    "accounts:counted",  # GPU time is counted until now, and not written yet
    "accounts:kept",  # the file that outlives a boot is written, its copy for servers is not
    "accounts:copied",  # both are written, what the service of a hub reads is not
)
"""The points of the process that counts GPU-hours on one machine."""

LIMIT_POINTS: Final = (
    "limits:temporary",  # the new limits of a machine are in a temporary file, not yet under their name
    "limits:replaced",  # they are in force, and their writer has not said so
)
"""The points of writes of a machine's limits."""

HUB_POINTS: Final = (
    "hub:recorded",  # the removal of a limit is recorded, the limit is still there
    "hub:written",  # a limit is written or removed, nobody has an answer and the log no line
    "hub:checked",  # the request of a server is allowed, and not written yet
    "hub:requested",  # it is written into the server's pod, the server has no answer
)
"""The points of the hub's service."""


def point(name: str) -> None:
    """Kill this process if the environment, or the file that it names, names this point."""
    wanted = os.environ.get(VARIABLE)
    if wanted and (wanted == name or (wanted[0] == "@" and _taken(Path(wanted[1:]), name))):
        os.kill(os.getpid(), signal.SIGKILL)


def _taken(file: Path, name: str) -> bool:
    """Tell whether the file names this point; if so, remove the file."""
    try:
        found = file.read_text(encoding="utf-8") == name
        if found:
            file.unlink()
    except (OSError, UnicodeError):
        return False
    return found
