"""How the kernels of a worker ended: for want of memory, where the system says that it ended a process for that."""

from __future__ import annotations

import contextlib
import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePosixPath

from jupyter_gpu.remote.rules.control import Told

GROUPS = Path("/proc/self/cgroup")
"""The control groups of this process, by cgroups(7)."""
MOUNTED = Path("/sys/fs/cgroup")
"""The folder where they are mounted."""
_COUNT = re.compile(r"^oom_kill (\d{1,18})$", re.MULTILINE)
_KEPT = 64
"""Kernels that are remembered."""


def files(groups: str, mounted: Path) -> Iterator[Path]:
    """Yield the files that may count processes ended for want of memory, by version 2 and 1 of control groups.

    ``groups``: those of this process. In a container its own may be mounted where all of a machine are elsewhere. A
    group without such a file may be within one that has a limit.
    """
    known = {controllers: path for _, controllers, path in (line.split(":", 2) for line in groups.splitlines())}
    for controllers, folder, name in (
        ("", mounted, "memory.events"),
        ("memory", mounted / "memory", "memory.oom_control"),
    ):
        if controllers in known:
            own = PurePosixPath(known[controllers].removeprefix("/"))
            for group in (own, *own.parents):
                yield folder / group / name


def here() -> Iterator[Path]:
    """Yield those files of this process; none where the system has no control groups."""
    try:
        groups = GROUPS.read_text()
    except OSError:
        groups = ""
    yield from files(groups, MOUNTED)


class Endings:
    """The latest kernels that ended by themselves. ``files``: the first that tells a number counts."""

    def __init__(self, files: Iterable[Path]) -> None:
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

    def skip(self) -> None:
        """Take note that a process ended that is no notebook's: the next one is not blamed for its end."""
        self._kills = self._count()

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
