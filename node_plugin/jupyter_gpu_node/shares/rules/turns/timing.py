"""The settings of turns, and what a share earns and may save by them. Pure.

All times are whole microseconds of one monotonic clock.
"""

from __future__ import annotations

from dataclasses import dataclass, fields

LIMITS = {
    "period": (10_000, 10_000_000),
    "lease": (1_000, 1_000_000),
    "least": (100, 1_000_000),
    "switch": (0, 10_000),
    "grace": (1_000, 60_000_000),
    "savings": (0, 10_000),
    "expiry": (100_000, 3_600_000_000),
}
"""Least and most of each setting."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The timing of one GPU's turns. Raises `ValueError` for impossible ones, in words for the administrator."""

    period: int = 100_000
    """A share earns ``milli / 1000 * period`` in each, its slice."""
    lease: int = 20_000
    """Longest turn while others wait."""
    least: int = 2_000
    """Shortest turn that a share with saved time leaves to one without: each change of hands costs some 0.4 ms."""
    switch: int = 1_000
    """Cost of a switch at most; it is paid by all, in proportion."""
    grace: int = 50_000
    """Time in which a share that is asked for the GPU must give it back; after that it is reported."""
    savings: int = 20
    """Capacity of a bank, in slices of its share."""
    expiry: int = 30_000_000
    """Time for which a deposit can be spent."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, (least, most) = getattr(self, one.name), LIMITS[one.name]
            if not least <= value <= most:
                raise ValueError(f"{one.name} is {value}; it must be from {least} to {most}.")
        if not self.least <= self.lease <= self.period:
            raise ValueError("least, lease and period must not be shorter than the one before.")

    def slice(self, milli: int) -> int:
        """Return what a share of ``milli`` earns in a period."""
        return milli * self.period // 1000

    def cap(self, milli: int) -> int:
        """Return what its bank holds at most."""
        return self.savings * self.slice(milli)
