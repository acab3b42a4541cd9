"""Freezing the processes of a group for a scan, so that no descriptor is passed around meanwhile."""

from __future__ import annotations

import contextlib
import enum
import time
from collections.abc import Iterator
from pathlib import Path

from . import cgroup
from .unfreezer import Unfreezer

FREEZE, FREEZE_EACH, FREEZE_MOST = 0.05, 0.0002, 0.5
"""Seconds until the processes must be frozen, with more for each; one that waits for a disk may take longer."""

_unfreezer = Unfreezer()


class FreezeResult(enum.Enum):
    """Whether the processes of a group are frozen."""

    STILL = enum.auto()
    MOVING = enum.auto()
    """One of them did not stop in time."""
    IMPOSSIBLE = enum.auto()
    """The group's files may not be written here."""


@contextlib.contextmanager
def frozen(group: Path) -> Iterator[FreezeResult]:
    """Freeze all processes of the group while the block runs; yield whether they are.

    If this process dies meanwhile, they are unfrozen (`Unfreezer`).
    """
    try:
        _unfreezer.hold(group)
        (group / "cgroup.freeze").write_text("1")
    except OSError:
        yield FreezeResult.IMPOSSIBLE
        return
    try:
        yield FreezeResult.STILL if await_frozen(group) else FreezeResult.MOVING
    finally:
        unfreeze(group)
        _unfreezer.release(group)


def unfreeze(group: Path) -> None:
    """Unfreeze the pod's processes; harmless if they run, or are gone."""
    with contextlib.suppress(OSError):
        if (group / "cgroup.freeze").read_text().strip() != "0":
            (group / "cgroup.freeze").write_text("0")


def await_frozen(group: Path) -> bool:
    """Wait until all processes of the group are frozen; false if one did not stop in time."""
    until = time.monotonic() + min(FREEZE + FREEZE_EACH * len(cgroup.processes(group)), FREEZE_MOST)
    while "frozen 1" not in (group / "cgroup.events").read_text().splitlines():
        if time.monotonic() > until:
            return False
        time.sleep(0.0005)
    return True
