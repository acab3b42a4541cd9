"""The clock that the process that counts GPU-hours writes down: seconds since the start of the machine, and which."""

from __future__ import annotations

import time
from pathlib import Path

_BOOT = Path("/proc/sys/kernel/random/boot_id")


def boot() -> str:
    """Return the id of this boot; empty where the system has none."""
    try:
        return _BOOT.read_text(encoding="ascii").strip()
    except OSError:
        return ""


def since_boot() -> float:
    """Return the seconds since the start of the machine, time asleep included."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
