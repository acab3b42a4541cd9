"""Notebooks whose cells need whole GPUs now and then: read from a recording, or drawn so that they resemble one.

Minutes throughout.
"""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from . import day
from .figures import CannotRunError

_SIZES = (1, 4, 8)
_SIZE_WEIGHTS = (29, 9, 13)
"""Notebooks of the recording by GPUs of their cells."""


class GpuCell(NamedTuple):
    """A cell that runs on GPUs: it begins at ``start``, or when the one before it has ended, as soon as it has them."""

    start: int
    length: int
    memory: float = 0.0
    """Megabytes that it has on its GPUs, where that is recorded."""


class Session(NamedTuple):
    """A notebook that is there from ``start`` to ``stop``, or until its last cell has ended."""

    start: int
    stop: int
    gpus: int
    """Needed by each of its cells."""
    cells: tuple[GpuCell, ...]


def recorded(folder: Path) -> list[Session]:
    """Read all sessions that have cells with GPUs; raises `CannotRunError`."""
    try:
        sessions = json.loads((folder / day.RECORDING).read_text())["sessions"]
        return [found for one in sessions if (found := _session(one))]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CannotRunError(f"{folder / day.RECORDING} is no recording of sessions: {error!r}") from error


def _session(body: dict[str, Any]) -> Session | None:
    trainings = sorted((one for one in body["trainings"] if one["gpus"]), key=lambda one: one["start_tick"])
    cells = tuple(
        GpuCell(one["start_tick"], one["end_tick"] - one["start_tick"], 1000.0 * one["vram"]) for one in trainings
    )
    gpus = max((one["gpus"] for one in trainings), default=0)
    return Session(body["start_tick"], body["stop_tick"], gpus, cells) if cells else None


def drawn(count: int, seed: int = 0) -> list[Session]:
    """Draw this many notebooks of one day: their cells as `day.drawn` has them, their GPUs as in the recording."""
    chance = random.Random(seed)
    return [
        Session(one.start, one.stop, size, tuple(GpuCell(cell.start, cell.length) for cell in one.cells))
        for one, size in zip(day.drawn(count, seed), chance.choices(_SIZES, _SIZE_WEIGHTS, k=count), strict=False)
    ]


def peak(sessions: Sequence[Session], *, reserved: bool = False) -> int:
    """Return the most GPUs in use at once if no cell waits; ``reserved``: each session has its own all the time."""
    changes: list[tuple[int, int]] = []
    for one in sessions:
        begun = one.start
        for cell in one.cells:
            begin = max(cell.start, begun)
            begun = begin + cell.length
            if not reserved:
                changes += [(begin, one.gpus), (begun, -one.gpus)]
        if reserved:
            changes += [(one.start, one.gpus), (max(begun, one.stop), -one.gpus)]
    now = most = 0
    for _, change in sorted(changes):
        now += change
        most = max(most, now)
    return most
