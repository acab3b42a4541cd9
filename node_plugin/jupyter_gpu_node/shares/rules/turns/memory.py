"""Bytes of GPU memory of one share over all its processes. Pure.

What a process reports when it connects is believed, as nothing can be taken from it. More is granted as long as the
share stays within its limit. Above the limit (after the server or a connection came back, or the limit went down)
nothing more is granted until enough is freed.

The driver says how much memory each process really holds (`Pool.measured`). What a process holds and did not report
counts as well, so the others of its share can have less. A program may keep what it has freed, as memory pools do, and
use it again later: so a process counts as the larger of the two figures, never as their sum.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from jupyter_gpu_node.shares.rules.framing import MOST
from jupyter_gpu_node.shares.rules.protocol import NO_LIMIT, Memory


class MeasuredMemory(NamedTuple):
    """The memory that a process holds according to the driver, beyond what its contexts may take."""

    size: int
    reported: int
    """Size that it had reported when the driver was asked."""


@dataclass(slots=True)
class _ProcessMemory:
    """The memory of one process."""

    reported: int
    most: int
    """The most that it ever reported, and was granted."""
    held: int = 0
    since: int = 0
    """Size that it had reported when that was measured."""
    freed: bool = False
    """Whether it reported less while the driver was asked the last time."""

    @property
    def size(self) -> int:
        """Bytes that count. What it says that it has freed since the measurement is believed until the next one."""
        return max(self.reported, self.held - max(0, self.since - self.reported))


class Pool:
    """The memory of one share. ``limit`` None: as much as there is."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.used = 0
        """Bytes used by all processes."""
        self._processes: dict[Hashable, _ProcessMemory] = {}
        self._outside = 0
        """Bytes of processes that never reported anything."""

    def size(self, process: Hashable) -> int:
        """Return the bytes that ``process`` may have."""
        known = self._processes.get(process)
        return known.reported if known else 0

    def need(self, process: Hashable, size: int) -> int:
        """Return how many bytes ``process`` may have, which wants ``size`` in all.

        The first request of a process says what it has already, and is granted whatever the limit is. Less is always
        granted.
        """
        known = self._processes.get(process)
        if known is None:
            self._processes[process] = _ProcessMemory(size, size)
            self.used += size
            return size
        before, old = known.size, known.reported
        known.reported = size
        used = self.used + known.size - before
        if size > old and self.limit is not None and used > self.limit:
            known.reported = old
        else:
            self.used, known.most = used, max(known.most, size)
        return known.reported

    def message(self, process: Hashable) -> Memory:
        """Return the message that says what ``process`` may have."""
        return Memory(self.size(process), NO_LIMIT if self.limit is None else self.limit, min(self.used, MOST))

    def leave(self, process: Hashable) -> None:
        """Free what a process had, as it or its connection ended."""
        if known := self._processes.pop(process, None):
            self.used -= known.size

    def measured(self, held: Mapping[Any, MeasuredMemory], outside: int) -> bool:
        """Record what processes hold according to the driver, and tell whether that changes what is used.

        ``outside``: bytes of processes of this share that never reported anything. A process that reported less while
        the driver was asked may have freed it before or after the answer: it is believed, but not twice in a row.
        """
        before = self.used
        for process, known in self._processes.items():
            size, reported = held.get(process, MeasuredMemory(0, known.reported))
            fell = known.reported < reported
            known.held, known.since = size, reported if fell and not known.freed else known.reported
            known.freed = fell and not known.freed
        silent = sum(one.size for process, one in held.items() if process not in self._processes)
        self._outside = outside + silent
        self.used = self._outside + sum(known.size for known in self._processes.values())
        return self.used != before

    @property
    def untold(self) -> int:
        """Bytes above the limit that no process was ever granted: what is held within the limit does no harm."""
        if self.limit is None:
            return 0
        never = self._outside + sum(max(0, one.size - one.most) for one in self._processes.values())
        return max(0, min(never, self.used - self.limit))

    def __contains__(self, process: Hashable) -> bool:
        """Tell whether it has said what it needs."""
        return process in self._processes
