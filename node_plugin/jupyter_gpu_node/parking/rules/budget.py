"""Host memory for parks: how much one takes, and whether it fits. Pure.

If a control group has no room in the middle of a checkpoint, the kernel ends the process, and everything is lost. So
doubt refuses, and what is under way is booked until it is charged: then the control group shows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

MIB = 2**20
FIRST_CONTEXT = 620 * MIB
FURTHER_CONTEXT = 512 * MIB
BESIDE = 128 * MIB
"""Bytes beside what the driver reports for a process."""
SPARE = 256 * MIB
"""Bytes that stay free in each control group."""


class GroupMemory(NamedTuple):
    """The memory of one control group."""

    limit: int | None
    """``memory.max``; ``None``: no limit."""
    used: int
    """``memory.current``."""
    inactive: int
    """``inactive_file``: what the kernel gives back first."""


class NodeMemory(NamedTuple):
    """The memory of the node."""

    available: int
    """``MemAvailable``."""
    budget: int
    """Bytes that may be parked on it (``parking.hostMemory``)."""


class Booking(NamedTuple):
    """Host memory of one bundle that is parked, or under way."""

    pod: str
    size: int
    charged: bool
    """Whether it is parked: then the kernel counts it, too."""


def size_of(counted: int, contexts: int, reported: int | None = None) -> int:
    """Return the bytes that one process takes; ``reported``: those that its driver reports on its GPUs."""
    if reported is not None:
        return max(reported, counted) + BESIDE
    return counted + FIRST_CONTEXT + FURTHER_CONTEXT * max(0, contexts - 1)


def missing(
    size: int, pod: str, groups: Sequence[GroupMemory], node: NodeMemory, booked: Iterable[Booking] = ()
) -> int:
    """Return how many bytes are missing to park ``size`` of that pod; 0: it fits."""
    bookings = list(booked)
    coming = [one for one in bookings if not one.charged]
    rooms = [node.budget - sum(one.size for one in bookings)]
    rooms.append(node.available - node.available // 10 - sum(one.size for one in coming))
    own = sum(one.size for one in coming if one.pod == pod)
    rooms += [group.limit - group.used + group.inactive - SPARE - own for group in groups if group.limit is not None]
    return max(0, size - min(rooms))
