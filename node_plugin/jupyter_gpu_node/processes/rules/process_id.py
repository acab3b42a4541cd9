"""The identity of a process: pid and start time, so that a reused pid is never taken for the old process. Pure."""

from __future__ import annotations

from typing import NamedTuple


class ProcessId(NamedTuple):
    """A process, also after its pid belongs to another one."""

    pid: int
    start: int
    """Clock ticks after boot (`/proc/<pid>/stat`, field 22): no wall clock, so setting it back changes nothing."""


ProcessIds = frozenset[ProcessId]
