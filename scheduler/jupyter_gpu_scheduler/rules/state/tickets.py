"""The tickets in use. They are numbered across the whole cluster, so that the lines of nodes can be compared."""

from __future__ import annotations

import heapq
from collections import Counter


class Tickets:
    """The tickets that pods have. Taking one, giving one back and asking for the highest cost O(log n)."""

    def __init__(self) -> None:
        self._count: Counter[int] = Counter()
        self._heap: list[int] = []  # negative, highest ticket first; those given back are dropped when they surface
        self._queued: set[int] = set()

    def take(self, ticket: int) -> None:
        """Note that one more pod has it: two schedulers that wrote at once may have given it twice."""
        if ticket not in self._queued:
            heapq.heappush(self._heap, -ticket)
            self._queued.add(ticket)
        self._count[ticket] += 1

    def give_back(self, ticket: int) -> None:
        """Note that one pod fewer has it."""
        self._count[ticket] -= 1
        if not self._count[ticket]:
            del self._count[ticket]
        while self._heap and -self._heap[0] not in self._count:
            self._queued.remove(-heapq.heappop(self._heap))

    @property
    def last(self) -> int:
        """The highest in use; 0 where there is none."""
        return -self._heap[0] if self._heap else 0
