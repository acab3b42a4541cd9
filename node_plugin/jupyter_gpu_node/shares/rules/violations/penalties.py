"""The settings of the penalties for violations. Pure."""

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
    "context": (0, 1_048_576),
    "untold": (0, 1_048_576),
}
"""Least and most of each setting."""


@dataclass(frozen=True, slots=True)
class Penalties:
    """The settings of one GPU. Microseconds and MiB; raises `ValueError` in words for the administrator."""

    grace: int = 500_000
    """Time from being asked for the GPU to being stopped. Longer than the arbiter's, after which it reports it: a
    kernel cannot be interrupted, and a share that is late by one long kernel only pays with its own time."""
    tolerance: int = 50
    """GPU time of processes that never ask that may be a measurement error, in thousandths of the time scanned."""
    looks: int = 3
    """Number of scans in a row that must see more than that."""
    longest: int = 10_000_000
    """Time after which a stop ends even if its share has had no turn."""
    strikes: int = 5
    """Number of strikes that cost the share."""
    forget: int = 600_000_000
    """Time after which a strike counts half."""
    kept: int = 60_000_000
    """Time after a strike in which processes that never ask run in turns of their share only. 0: no such time."""

    context: int = 1024
    """Memory that the driver may report for a process beyond what it told: contexts, code, rounding."""
    untold: int = 256
    """Memory above the limit of a share that may be held without having been granted. As with use, more is a violation
    after ``looks`` scans in a row."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, (least, most) = getattr(self, one.name), LIMITS[one.name]
            if type(value) is not int or not least <= value <= most:
                raise ValueError(f"{one.name} is {value!r}; it must be a whole number from {least} to {most}.")
