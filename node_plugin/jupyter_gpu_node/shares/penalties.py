"""The settings of what becomes of programs that do not keep to their turns (:mod:`.offences`). Pure."""

from __future__ import annotations

from dataclasses import dataclass, fields

LIMITS = {
    "grace": (1_000, 60_000_000),
    "tolerance": (0, 1000),
    "looks": (1, 100),
    "longest": (1_000, 600_000_000),
    "strikes": (1, 1000),
    "forget": (1_000_000, 7 * 86_400_000_000),
    "kept": (0, 3_600_000_000),
}
"""Least and most of each setting."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """The settings of one GPU. Microseconds; raises :class:`ValueError` in words for the administrator."""

    grace: int = 500_000
    """From being asked for the GPU to being stopped. Longer than that of the arbiter, after which it speaks of it: a
    kernel cannot be interrupted, and whoever is late by one long kernel pays with its own time, and is no offender."""
    tolerance: int = 50
    """GPU time of who never asks that may be an error of measurement, in thousandths of the time looked at."""
    looks: int = 3
    """How often in a row more than that must be seen."""
    longest: int = 10_000_000
    """A stop ends after that even if its share has had no turn."""
    strikes: int = 5
    """So many cost the share."""
    forget: int = 600_000_000
    """A strike counts half after that."""
    kept: int = 60_000_000
    """For so long after a strike who never asks runs in turns of its share only. 0: nobody is kept so."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, (least, most) = getattr(self, one.name), LIMITS[one.name]
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{one.name} is {value!r}; it must be a whole number from {least} to {most}.")
