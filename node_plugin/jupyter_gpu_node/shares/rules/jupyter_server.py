"""Detection of a container's Jupyter server: by its place among the processes, not by what came first. Pure.

The server is what a container was started for: its first process, or a descendant of that (behind ``tini``, a shell, or
the supervisor of the image). All that users run, it has started later: kernels, terminals, and what these left behind.
So of those that come from the first process and are connected to the container's socket the oldest is the server.
What was put into the container afterwards (``kubectl exec``) does not come from its first process.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar


class StartedProcess(Protocol):
    """A process whose start time is known."""

    @property
    def start(self) -> int:
        """Clock ticks after boot."""


P = TypeVar("P", bound=StartedProcess)


@dataclass(frozen=True, slots=True)
class Ancestor:
    """A process, or a parent of it."""

    started: int
    inside: bool
    """Whether it is in the same control group as the process itself: that of its container."""
    first: bool
    """Whether it has the number 1 in a pid namespace of its own."""


def top(ancestry: Sequence[Ancestor], most: int) -> Ancestor | None:
    """Return the oldest of ``ancestry`` (a process, its parent, …) in the container; None if cut off after ``most``.

    A process can have as many parents as it likes in namespaces of its own, so a line that was cut off tells nothing.
    """
    found = None
    for one in ancestry:
        if not one.inside:
            return found
        found = one
    return found if len(ancestry) < most else None


def is_first(top: Ancestor, started: Iterable[int] | None) -> bool:
    """Tell whether it is the container's first process.

    ``started``: the start times of all in its control group, None: not known. Where containers of a pod share their
    processes the number tells nothing, and only the oldest is the first.
    """
    return top.first or (started is not None and all(top.started <= other for other in started))


def server(connected: Iterable[P]) -> P | None:
    """Return the Jupyter server among those from the container's first process: the oldest; None: none connected."""
    return min(connected, key=lambda one: one.start, default=None)


def makes_room(connected: Iterable[P], newcomer: P) -> P | None:
    """Return the one whose connection ends for ``newcomer`` at the limit; None: the newcomer's own.

    So no process that the server has started can keep the server from its socket.
    """
    youngest = max(connected, key=lambda one: one.start, default=None)
    return youngest if youngest is not None and newcomer.start < youngest.start else None
