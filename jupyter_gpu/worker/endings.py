"""How the kernels of a worker ended: for want of memory, where the system says that it ended a process for that."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterable
from pathlib import Path

from jupyter_gpu.remote.rules.control import Told

FILES = (Path("/sys/fs/cgroup/memory.events"), Path("/sys/fs/cgroup/memory/memory.oom_control"))
"""Files that count the processes of this container which were ended for want of memory, by version 2 and 1 of groups.
"""
_COUNT = re.compile(r"^oom_kill (\d{1,18})$", re.MULTILINE)
_KEPT = 64
"""Kernels that are remembered."""


class Endings:
    """The latest kernels that ended by themselves. ``files``: as `FILES`."""

    def __init__(self, files: Iterable[Path] = FILES) -> None:
        self._files = tuple(files)
        self._kills = self._count()
        self._for_memory: dict[str, bool] = {}

    def add(self, kernel: str, status: int) -> None:
        """Remember a kernel that ended with this status."""
        kills = self._count()
        self._for_memory[kernel] = status == -signal.SIGKILL and kills > self._kills
        self._kills = kills
        if len(self._for_memory) > _KEPT:
            del self._for_memory[next(iter(self._for_memory))]

    def told(self, kernel: str, *, alive: bool) -> Told:
        """Return what is known about a kernel."""
        return Told(kernel, alive, not alive and self._for_memory.get(kernel, False))

    def _count(self) -> int:
        """Return how many processes were ended for want of memory so far; 0 where nothing says it."""
        for file in self._files:
            with contextlib.suppress(OSError):
                if found := _COUNT.search(file.read_text()):
                    return int(found[1])
        return 0
