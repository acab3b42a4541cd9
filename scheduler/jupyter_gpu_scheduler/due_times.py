"""The changes of pods that time brings: a wish that is answered later, and a wait that has become too long."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterator

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu_scheduler.rules.queue.aging import overdue_at
from jupyter_gpu_scheduler.rules.queue.pace import AskedWish, PacedWish, first, paced
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

from .clocks import Clocks
from .settings import LineSettings


class DueTimes:
    """The times at which the newest wish of each pod is answered, and at which it will have waited too long.

    ``on_earlier`` is called when something is due that may be due before all else.
    """

    def __init__(self, line: LineSettings, clocks: Clocks, on_earlier: Callable[[], None]) -> None:
        self._line = line
        self._elapsed = clocks.elapsed
        self._now = clocks.now
        self._on_earlier = on_earlier
        self._paced: dict[str, PacedWish] = {}
        self._held_back: set[str] = set()  # pods whose newest wish is not answered yet
        self._answer_heap: list[tuple[float, str]] = []  # when to answer which of them, soonest first
        self._overdue: dict[str, float] = {}  # pods in line: when they will have waited too long
        self._overdue_heap: list[tuple[float, str]] = []  # the same, soonest first

    def paced(self, uid: str) -> PacedWish | None:
        """Return the wish that `pace` chose, and how often it changed; ``None``: none was chosen yet."""
        return self._paced.get(uid)

    def asked(self, uid: str) -> AskedWish:
        """Return the wish that `pace` chose."""
        return self._paced[uid].asked

    def pace(self, state: PodState) -> PacedWish:
        """Choose the wish of a pod that is answered now: the newest, unless it changes too often."""
        uid, now, line = state.uid, self._elapsed(), self._line
        asked, known = AskedWish(state.requested, state.fault), self._paced.get(uid)
        if known is None:
            chosen = self._paced[uid] = first(asked, now, line.wish_burst)
            return chosen
        chosen, wait = paced(known, asked, now, burst=line.wish_burst, seconds=line.wish_seconds)
        self._paced[uid] = chosen
        if wait and uid not in self._held_back:
            self._held_back.add(uid)
            heapq.heappush(self._answer_heap, (now + wait, uid))
            self._on_earlier()
        return chosen

    def is_overdue(self, uid: str, allocated: Allocated | None) -> bool:
        """Tell whether a pod has waited too long, and note when it will have."""
        when = overdue_at(allocated, self._line.patience_seconds)
        if when is None:
            self._overdue.pop(uid, None)
            return False
        if self._overdue.get(uid) != when:
            self._overdue[uid] = when
            if when > self._now():
                heapq.heappush(self._overdue_heap, (when, uid))
                self._on_earlier()
        return when <= self._now()

    def forget(self, uid: str) -> None:
        """Forget a pod that is gone."""
        self._overdue.pop(uid, None)
        self._paced.pop(uid, None)

    def seconds_until_due(self) -> list[float]:
        """Return the seconds until the next wish is answered and until the next wait is too long, if there are any."""
        seconds = [self._answer_heap[0][0] - self._elapsed()] if self._answer_heap else []
        if self._overdue_heap:
            seconds.append(self._overdue_heap[0][0] - self._now())
        return seconds

    def due_answers(self) -> Iterator[str]:
        """Yield the pods whose newest wish may be answered by now; `pace` chooses it."""
        now = self._elapsed()
        while self._answer_heap and self._answer_heap[0][0] <= now:
            _, uid = heapq.heappop(self._answer_heap)
            self._held_back.discard(uid)
            yield uid

    def newly_overdue(self) -> Iterator[str]:
        """Yield the pods that have waited too long since the last call."""
        while self._overdue_heap and self._overdue_heap[0][0] <= self._now():
            when, uid = heapq.heappop(self._overdue_heap)
            if self._overdue.get(uid) == when:
                yield uid
