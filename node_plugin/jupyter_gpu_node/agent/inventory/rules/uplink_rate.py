"""Use of a node's uplink, from the kernel's counters. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpu.model.network import MAX_SPEED

SECONDS = 60.0
"""Seconds over which the use is measured, and so the least time between two writes because of it."""
STEP = 0.1
"""Changes up to this are not published: a load that varies a little causes no writes."""


@dataclass(frozen=True, slots=True)
class UplinkCounters:
    """The counters of the uplink at one time."""

    name: str
    received: int
    sent: int
    """Bytes since the interface came up."""
    speed: float
    """Bytes a second in one direction."""
    time: float


def uplink(routes: str) -> str:
    """Return the interface of the default route with the lowest metric, from ``/proc/<pid>/net/route``; or empty."""
    found = []
    for line in routes.splitlines()[1:]:
        fields = line.split()
        if len(fields) > 7 and fields[1] == fields[7] == "00000000" and fields[6].isdigit():
            found.append((int(fields[6]), fields[0]))
    return min(found, default=(0, ""))[1]


def counted(devices: str, name: str) -> tuple[int, int] | None:
    """Return the bytes received and sent of an interface, from ``/proc/<pid>/net/dev``."""
    for line in devices.splitlines():
        interface, colon, rest = line.partition(":")
        fields = rest.split()
        if colon and interface.strip() == name and len(fields) > 8 and fields[0].isdigit() and fields[8].isdigit():
            return int(fields[0]), int(fields[8])
    return None


def bytes_a_second(speed: str) -> float | None:
    """Return bytes a second from ``/sys/class/net/<name>/speed``, in Mbit/s; None if it has none, as virtual ones."""
    text = speed.strip()
    return int(text) * 1e6 / 8 if text.isdigit() and int(text) > 0 else None


def megabits(speed: float) -> int | None:
    """Return bytes a second as Mbit/s, as an inventory has it; None for more than makes sense."""
    found = round(speed * 8 / 1e6)
    return found if found <= MAX_SPEED else None


def use(before: UplinkCounters | None, after: UplinkCounters | None) -> float | None:
    """Return the use of the uplink between two readings, 0 to 1, of the busier direction; None: not known."""
    if before is None or after is None or before.name != after.name or after.time <= before.time:
        return None
    received, sent = after.received - before.received, after.sent - before.sent
    if received < 0 or sent < 0:  # it came up anew
        return None
    return min(1.0, max(received, sent) / (after.time - before.time) / after.speed)


def published(old: float | None, new: float | None) -> float | None:
    """Return the number to report: the old one for as long as the new one is near it."""
    if old is None or new is None:
        return new
    return old if abs(new - old) <= STEP + 1e-9 else new
