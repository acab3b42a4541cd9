"""The machine's time zone, which is not that of a user's environment."""

from __future__ import annotations

import contextlib
from datetime import UTC, tzinfo
from pathlib import Path

LOCALTIME = Path("/etc/localtime")
NAME = Path("/etc/timezone")
"""Its name, where that file is a copy and no link."""
_NAMES = "zoneinfo/"


def machine_zone() -> tzinfo:
    """Return the machine's time zone; UTC where it has none."""
    from zoneinfo import ZoneInfo

    with contextlib.suppress(OSError, ValueError), LOCALTIME.open("rb") as file:
        return ZoneInfo.from_file(file)
    return UTC


def zone_name() -> str:
    """Return the name of the machine's time zone, such as ``Europe/Berlin``; UTC where it has none."""
    with contextlib.suppress(OSError, ValueError):
        _, found, name = str(LOCALTIME.resolve(strict=True)).rpartition(_NAMES)
        name = name if found else NAME.read_text(encoding="utf-8").strip()
        if is_zone(name):
            return name
    return "UTC"


def is_zone(name: str) -> bool:
    """Tell whether this machine knows a time zone of that name."""
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(name)
    except (KeyError, OSError, ValueError):
        return False
    return True
