"""Pods of containers that have ended: only a process that sees all of the machine can tell.

A server in a container is a process of another pid namespace, where its number means nothing to servers in others: for
them it lives. A namespace ends with its last process, and none comes back.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

from jupyter_gpu.backends.local.processes.identity import FIRST_NAMESPACE, namespace
from jupyter_gpu.backends.local.records.other_pods import OtherPod

PROC = Path("/proc")


def ended(pods: Iterable[OtherPod]) -> tuple[OtherPod, ...]:
    """Return those pods of which no process is left in their pid namespace; none where not all can be seen."""
    elsewhere = [pod for pod in pods if pod.record.namespace != namespace()]
    if not elsewhere or namespace() != FIRST_NAMESPACE or os.geteuid() != 0:
        return ()
    alive = _namespaces()
    return tuple(pod for pod in elsewhere if pod.record.namespace not in alive)


def _namespaces() -> frozenset[int]:
    """Return the numbers of all pid namespaces that have a process."""
    found = set()
    for entry in os.scandir(PROC):
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):  # it has ended meanwhile
                found.add(os.stat(f"{entry.path}/ns/pid").st_ino)  # noqa: PTH116 - of every process of the machine
    return frozenset(found)
