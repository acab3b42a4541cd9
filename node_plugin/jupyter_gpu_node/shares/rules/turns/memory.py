"""Bytes of GPU memory of one share over all its processes. Pure.

What a process has is believed, for nothing can be taken from it; what it wants besides is granted as long as the share
stays within its limit. Above the limit, after the server or a connection came back or the limit went down, everything
more is refused until enough is freed.
"""

from __future__ import annotations

from collections.abc import Hashable


class Pool:
    """The memory of one share. ``limit`` None: as much as there is."""

    def __init__(self, limit: int | None = None) -> None:
        self.limit = limit
        self.used = 0
        """Bytes used by all processes."""
        self._sizes: dict[Hashable, int] = {}

    def size(self, process: Hashable) -> int:
        """Return the bytes that ``process`` may have."""
        return self._sizes.get(process, 0)

    def need(self, process: Hashable, size: int) -> int:
        """Return how many bytes ``process`` may have, which wants ``size`` in all.

        The first time it says what it has, which is so whatever the limit is. Less is always granted.
        """
        known = self._sizes.get(process)
        if known is None or size <= known or self.limit is None or self.used + size - known <= self.limit:
            self._sizes[process] = size
            self.used += size - (known or 0)
        return self._sizes[process]

    def leave(self, process: Hashable) -> None:
        """Free what a process had, as it or its connection ended."""
        self.used -= self._sizes.pop(process, 0)

    def __contains__(self, process: Hashable) -> bool:
        """Tell whether it has said what it needs."""
        return process in self._sizes
