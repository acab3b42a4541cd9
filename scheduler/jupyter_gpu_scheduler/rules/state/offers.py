"""The nodes in kube-scheduler's last request for a pod.

kube-scheduler asks only about nodes that passed its own plugins: taints, readiness, cordon, affinity, volumes and all
else that is not known here. With thousands of waiting pods and nodes, equal lists are stored once.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True, slots=True, eq=False)
class OfferedNodes:
    """Names of nodes, sorted. Compared by identity, as there may be thousands: equal ones are made once."""

    names: tuple[str, ...]

    def __contains__(self, name: object) -> bool:
        index = bisect_left(self.names, name) if isinstance(name, str) else len(self.names)
        return index < len(self.names) and self.names[index] == name

    def __iter__(self) -> Iterator[str]:
        return iter(self.names)


def offered_nodes(names: Iterable[str]) -> OfferedNodes:
    """Return the offer for the node names in a question; equal offers are one object."""
    return _interned(tuple(sorted(map(sys.intern, names))))


@lru_cache(maxsize=64)
def _interned(names: tuple[str, ...]) -> OfferedNodes:
    return OfferedNodes(names)
