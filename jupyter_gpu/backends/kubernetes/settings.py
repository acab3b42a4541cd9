"""The configuration of this backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the extension that mean something in a pod."""

    limit: int | None = None
    """The most milli that this server requests. Advisory: the scheduler has the limits that count."""
    fractions: tuple[int, ...] = (250, 500)
    """Milli that the slider offers below one GPU."""
    priority: int = 0
    """0 to 9: the priority of requests that name none."""
