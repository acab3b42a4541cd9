"""The position in line that a pod is shown: exact near the front, then rounded.

A pod that leaves moves all pods behind it by one. So that this does not cost a write for each of them, positions beyond
the first ten are shown as one of few numbers, each about half as large again as the one before. A pod keeps its number
until that is wrong by more than half: a position that goes up and down by one never changes it.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import pairwise
from math import sqrt

from jupyter_gpu.model.quantity import EXACT_POSITIONS

ABOUT = tuple(number * 10**power // 10 for power in range(1, 6) for number in (15, 25, 40, 60, 100))
"""The numbers beyond: 15, 25, 40, 60, 100, 150 and so on."""

_EDGES = tuple(sqrt(one * other) for one, other in pairwise(ABOUT))
_WRONG = 1.5
"""Largest factor by which a shown number may be off before it is replaced."""


def shown_position(position: int, before: int | None = None) -> int:
    """Return the number to show to a pod at ``position`` that was shown ``before`` last."""
    if before is not None and before in ABOUT and position <= before * _WRONG and before <= position * _WRONG:
        return before
    return position if position <= EXACT_POSITIONS else ABOUT[bisect_left(_EDGES, position)]
