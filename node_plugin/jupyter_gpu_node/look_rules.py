"""How much of ``/proc`` one look reads of each pod, and when a pod of which there is more is searched again. Pure.

A tenant decides how many processes and open files it has, and a look at them costs time: 8 µs for each open file. What
a look reads of one pod is limited (:data:`EACH`), so that the releases of all others and the audit go on. A pod with
more is *over*: nothing of it is proven. It is searched by itself (:data:`MOST`), and waits for as long afterwards. What
is beyond that cannot be proven at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

EACH = 20_000
"""What one look reads of a pod, in open files: about 0.2 s."""
MOST = 4_000_000
"""What a search reads of it: about half a minute."""
PROCESS, THREAD, MAPPING = 20, 1, 0.125
"""What these cost, in open files."""
HIDDEN = 2
"""Who is searched for hidden descriptors as well costs so many times as much: what is allowed for it is more, too."""
LEAST_REST, MOST_REST = 1.0, 60.0
"""Seconds from the end of one search of a pod to the begin of the next."""
RARELY = 30.0
"""Seconds for which a GPU that the same process still has open is not looked for again."""


class OverBudget(Exception):
    """There is more than may be read."""


class Budget:
    """What may still be read of one pod."""

    def __init__(self, left: float) -> None:
        self.left = left

    @property
    def over(self) -> bool:
        """Whether it was not enough: it does not become so again."""
        return self.left < 0

    def spend(self, cost: float) -> None:
        """Before that is read. Raises :class:`OverBudget` from the first time on at which it is not enough."""
        if not self.over:
            self.left -= cost
        if self.over:
            raise OverBudget


class Budgets:
    """Of one look: each pod has its own."""

    def __init__(self, each: float = EACH) -> None:
        self.each = each
        self.by_pod: dict[str, Budget] = {}

    def of(self, pod: str) -> Budget:
        """That of ``pod``."""
        return self.by_pod.setdefault(pod, Budget(self.each))


class Search(NamedTuple):
    """One of a pod, on the clock of :func:`time.monotonic`."""

    began: float
    ended: float
    looked: frozenset[str]
    """Uuids."""

    def proves(self, uuids: frozenset[str], since: float) -> bool:
        """Whether it says something about ``uuids``, which may have been opened until ``since``."""
        return self.began >= since and uuids <= self.looked

    @property
    def next(self) -> float:
        """When the pod may be searched again: never for more than half of the time."""
        return self.ended + min(max(self.ended - self.began, LEAST_REST), MOST_REST)


def missing_since(before: Mapping[str, float], missing: frozenset[str], now: float) -> dict[str, float]:
    """By uuid since when it is denied and not known to be closed; ``before``: what this said at the last step."""
    return {uuid: before.get(uuid, now) for uuid in missing}
