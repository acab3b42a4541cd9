"""The configuration of this backend."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the extension that mean something in a pod."""

    limit: int | None = None
    """Milli that this server asks for at most. A courtesy: the scheduler has the limits that count."""
    fractions: tuple[int, ...] = (250, 500)
    """Milli that the slider offers below one GPU."""
    priority: int = 0
    """0 to 9, of wishes that do not say theirs."""
