"""Pods in the order in which they are served. Adding or removing one keeps the order without sorting all."""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterator

Rank = tuple[int, int, int, bool, int, float, str]
"""Precedence, priority, share of the owner, ticket, age and uid, so that the least is served first; the first and the
third are 0 except in a fair line. No two pods have the same."""


class Line:
    """The ranks of some pods, least first."""

    __slots__ = ("_ranks",)

    def __init__(self) -> None:
        self._ranks: list[Rank] = []

    def add(self, rank: Rank) -> None:
        """Add a rank that is not there."""
        insort(self._ranks, rank)

    def remove(self, rank: Rank) -> None:
        """Remove a rank that is there."""
        index = bisect_left(self._ranks, rank)
        assert self._ranks[index] == rank
        del self._ranks[index]

    def after(self, rank: Rank | None) -> Rank | None:
        """Return the next rank behind ``rank``, which need not be there; for ``None`` the first."""
        index = bisect_right(self._ranks, rank) if rank is not None else 0
        return self._ranks[index] if index < len(self._ranks) else None

    def __iter__(self) -> Iterator[str]:
        """Yield the uids."""
        return (rank[-1] for rank in self._ranks)

    def __len__(self) -> int:
        """Return the number of pods."""
        return len(self._ranks)
