"""Times of parks and returns, in seconds: what they are expected to take, and how long is waited. Pure."""

from __future__ import annotations

from typing import NamedTuple

GIB = 2**30
ANSWER = 5.0
"""A process answers a check."""
PATIENCE = 60.0
"""A return is tried while its GPUs cannot be opened, or their memory is not free; then it is decided anew."""
RETRY = 2.0
"""Pause before one process of a bundle is brought back once more, after others of it came back."""
_HANGS = 30.0
_BESIDE_LOCK = 10.0


class Times(NamedTuple):
    """Times of a park and a return, as measured by default."""

    lock: float = 2.0
    """The lock waits so long for submitted work."""
    park: float = 0.4
    park_gib: float = 0.45
    back: float = 0.3
    back_gib: float = 0.15

    def of_park(self, size: int) -> float:
        """Return what a park of so many bytes is expected to take."""
        return self.park + self.park_gib * size / GIB

    def of_return(self, size: int) -> float:
        """Return what its return is expected to take."""
        return self.back + self.back_gib * size / GIB

    def until_park_hangs(self, size: int) -> float:
        """Return when a park has taken too long: nothing ends it, but it is told."""
        return self.lock + _BESIDE_LOCK + 10 * self.of_park(size) + _HANGS

    def until_return_hangs(self, size: int) -> float:
        """Return when a return has taken too long, beside the time in which it is tried again."""
        return 10 * self.of_return(size) + _HANGS
