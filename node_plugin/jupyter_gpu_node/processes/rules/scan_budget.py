"""Limits on what one scan reads of each pod in ``/proc``, and when a larger pod may be searched again. Pure.

A tenant decides how many processes and open files it has, and a scan costs time: 8 µs for each open file. The amount
that a scan reads of one pod is limited (`EACH`), so that the releases of all others and the audit go on. A pod with
more is *over*: nothing is proven of it. It is searched by itself (`MOST`), and waits for as long afterwards. Anything
beyond that cannot be proven at all.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

EACH = 20_000
"""Limit of one scan of a pod, in open files: about 0.2 s."""
MOST = 4_000_000
"""Limit of a search of a pod, in open files: about half a minute."""
PROCESS, THREAD, MAPPING = 20, 1, 0.125
"""Costs of a process, a thread and a mapping, in open files."""
HIDDEN = 2
"""Factor by which a search for hidden descriptors costs more: its limit is higher, too."""
LEAST_REST, MOST_REST = 1.0, 60.0
"""Seconds from the end of one search of a pod to the begin of the next."""
RARELY = 30.0
"""Seconds for which a GPU that the same process still has open is not scanned for again."""


class OverBudget(Exception):
    """The error for a process that has more than may be read."""


class ScanBudget:
    """The amount that may still be read of one pod."""

    def __init__(self, remaining: float) -> None:
        self.remaining = remaining

    @property
    def over(self) -> bool:
        """Whether the budget was exceeded: it stays so."""
        return self.remaining < 0

    def spend(self, cost: float) -> None:
        """Spend ``cost`` before reading. Raises `OverBudget` once the budget is exceeded, and from then on."""
        if not self.over:
            self.remaining -= cost
        if self.over:
            raise OverBudget


class Budgets:
    """The budgets of one scan: each pod has its own."""

    def __init__(self, each: float = EACH) -> None:
        self.each = each
        self.by_pod: dict[str, ScanBudget] = {}

    def of(self, pod: str) -> ScanBudget:
        """Return the budget of ``pod``."""
        return self.by_pod.setdefault(pod, ScanBudget(self.each))


class Search(NamedTuple):
    """One search of a pod, on the clock of `monotonic`."""

    began: float
    ended: float
    scanned: frozenset[str]
    """Uuids."""

    def proves(self, uuids: frozenset[str], since: float) -> bool:
        """Tell whether it proves anything about ``uuids``, which may have been opened until ``since``."""
        return self.began >= since and uuids <= self.scanned

    @property
    def next(self) -> float:
        """Time when the pod may be searched again: never for more than half of the time."""
        return self.ended + min(max(self.ended - self.began, LEAST_REST), MOST_REST)


def denied_since(before: Mapping[str, float], unproven: frozenset[str], now: float) -> dict[str, float]:
    """Return, by uuid, since when it is denied and not proven closed; ``before``: the result of the last step."""
    return {uuid: before.get(uuid, now) for uuid in unproven}
