"""How much memory this program may still take: of its machine, and of the limits of its control groups."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import psutil

GROUPS = Path("/sys/fs/cgroup")
"""The folder of control groups, of the first (a folder for each controller) or the second version."""
FILES = (
    ("memory.max", "memory.current", "inactive_file"),
    ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"),
)
"""For each version, the files with limit and use, and the field of ``memory.stat`` that can be had back."""


def free() -> int:
    """Return the bytes that may still be taken."""
    lines = Path("/proc/self/cgroup").read_text().splitlines()
    return min([int(psutil.virtual_memory().available), *limits(lines, GROUPS)])


def limits(lines: list[str], groups: Path) -> list[int]:
    """Return what is left in each control group with a limit, by the lines of ``/proc/self/cgroup``."""
    found = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        top = groups / "memory" if "memory" in controllers.split(",") else groups
        if controllers and top == groups:
            continue
        own = top / path.lstrip("/")
        for folder in (own, *(up for up in own.parents if up.is_relative_to(top))):
            for names in FILES:
                with suppress(OSError, ValueError, KeyError):
                    found.append(_left(folder, *names))
    return found


def _left(folder: Path, limit: str, use: str, cached: str) -> int:
    """Return what is left in one group; raises ValueError where it has no limit."""
    most, used = (int((folder / name).read_text()) for name in (limit, use))
    rows = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
    return max(0, most - used + int(rows[cached]))
