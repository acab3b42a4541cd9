"""The parents and start times of processes, as far as ``/proc`` shows them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from .rules import proc_stat


def ancestors(pid: int) -> Iterator[int]:
    """Yield ``pid``, its parent, and so on, as far as ``/proc`` shows them."""
    seen: set[int] = set()
    while pid > 0 and pid not in seen:
        seen.add(pid)
        yield pid
        pid = _stat(pid)[0]


def started(pid: int) -> int:
    """Return the start of a process in ticks since the boot, as pids are reused; 0 if there is no such process."""
    return _stat(pid)[1]


def _stat(pid: int) -> tuple[int, int]:
    try:
        found = proc_stat.parse(Path(f"/proc/{pid}/stat").read_bytes())
        return found.parent, found.start
    except (OSError, ValueError, IndexError):
        return 0, 0
