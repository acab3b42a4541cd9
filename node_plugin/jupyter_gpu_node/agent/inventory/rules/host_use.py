"""How much of a machine's CPU, memory and disk is in use, in classes that rarely change. Pure.

What is measured is the mean over a window of some minutes. A class is an eighth of all; it changes once the mean is a
quarter of an eighth beyond its border, and all together no more often than every second window. So a load that varies
within a class causes no write, and no load at all causes more than six an hour with a window of 5 minutes.
"""

from __future__ import annotations

import math
from collections import deque
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from jupyter_gpu.model.node_use import EIGHTHS, NodeUse

READINGS = 5
"""In a window."""
MARGIN = 0.25
"""Eighths beyond the border of a class at which it changes."""
WINDOWS_APART = 2
"""From one change to the next, at least."""
_TIMES = 8
"""Kinds of time in a line of ``/proc/stat``; those behind them are counted in them already."""
_IDLE, _WAITS_FOR_DISK = 3, 4


class CpuTime(NamedTuple):
    """The time of all CPUs since the machine started, in ticks."""

    busy: int
    all: int


@dataclass(frozen=True, slots=True)
class HostReading:
    """Figures of a machine's files at one time; ``None``: they said nothing."""

    time: float
    """Seconds, on a clock that never goes back."""
    cpu: CpuTime | None = None
    memory: float | None = None
    """The part that is in use, 0 to 1."""
    disk: float | None = None


def cpu_time(stat: str) -> CpuTime | None:
    """Return the time of all CPUs, from ``/proc/stat``: those that are idle, or wait for a disk, are not busy."""
    name, *fields = (stat.splitlines() or [""])[0].split() or [""]
    times = fields[:_TIMES]
    if name != "cpu" or len(times) < _TIMES or not all(text.isascii() and text.isdigit() for text in times):
        return None
    ticks = [int(text) for text in times]
    return CpuTime(sum(ticks) - ticks[_IDLE] - ticks[_WAITS_FOR_DISK], sum(ticks))


def memory_in_use(meminfo: str) -> float | None:
    """Return the part of the memory that programs could not get, from ``/proc/meminfo``."""
    found: dict[str, int] = {}
    for line in meminfo.splitlines():
        name, _, rest = line.partition(":")
        number = (rest.split() or [""])[0]
        if name in ("MemTotal", "MemAvailable") and number.isascii() and number.isdigit():
            found[name] = int(number)
    return part_in_use(found.get("MemTotal", 0), found.get("MemAvailable", -1))


def part_in_use(total: int, available: int) -> float | None:
    """Return the part that is not available, 0 to 1; ``None``: the numbers make no sense."""
    return 1 - min(available, total) / total if total > 0 <= available else None


def eighths(told: int | None, mean: float | None) -> int | None:
    """Return the class of a mean: the one ``told`` last for as long as the mean is near it."""
    if mean is None:
        return None
    exact = EIGHTHS * max(0.0, min(1.0, mean))
    if told is not None and abs(exact - told) <= 0.5 + MARGIN:
        return told
    return math.floor(exact + 0.5)


@dataclass(slots=True)
class HostUse:
    """The readings of the last window, and the classes that were told last."""

    seconds: float
    """The window."""
    told: NodeUse = field(default_factory=NodeUse)
    _readings: deque[HostReading] = field(default_factory=deque)
    _changed: float = -math.inf

    def observe(self, reading: HostReading) -> bool:
        """Record a reading, and tell whether there are other classes to tell. Nothing is known before a window."""
        readings = self._readings
        readings.append(reading)
        while len(readings) > 1 and readings[1].time <= reading.time - self.seconds:
            readings.popleft()
        if readings[0].time > reading.time - self.seconds:
            return False
        now = replace(
            self.told,
            cpu=eighths(self.told.cpu, _busy(readings[0].cpu, reading.cpu)),
            memory=eighths(self.told.memory, _mean([one.memory for one in readings])),
            disk=eighths(self.told.disk, _mean([one.disk for one in readings])),
        )
        if now == self.told or reading.time - self._changed < WINDOWS_APART * self.seconds:
            return False
        self.told, self._changed = now, reading.time
        return True


def _busy(before: CpuTime | None, now: CpuTime | None) -> float | None:
    """Return the part of the time between two readings in which CPUs were busy."""
    if before is None or now is None or now.all <= before.all:
        return None
    return (now.busy - before.busy) / (now.all - before.all)


def _mean(parts: list[float | None]) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) / len(known) if known else None
