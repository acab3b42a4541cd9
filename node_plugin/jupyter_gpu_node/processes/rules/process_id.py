"""Identity of a process: all that a Jupyter server needs of this package before the first share exists. Pure."""

from __future__ import annotations

from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process, also after its pid belongs to another one."""

    pid: int
    started: int
    """Start time, as the kernel counts it."""


Processes = frozenset[ProcessId]
