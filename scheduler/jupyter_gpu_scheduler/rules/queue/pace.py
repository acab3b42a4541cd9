"""The rate limit of one pod's wishes: some changes are answered at once, then one per interval. Pure.

Giving back is always answered at once: no more can be given back than was granted.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from jupyter_gpu.model.annotations import Requested


@dataclass(frozen=True, slots=True)
class AskedWish:
    """A user's wish for one pod, as it was read."""

    requested: Requested | None
    fault: str = ""
    """Reason why it can't be read; empty: it can."""

    def less_than(self, other: AskedWish) -> bool:
        """Tell whether this wish gives something back and asks for nothing else."""
        if self.fault or other.requested is None:
            return False
        if self.requested is None or not self.requested.milli:
            return True
        mine, theirs = (replace(asked.wish, milli=0, each=None) for asked in (self.requested, other.requested))
        return mine == theirs and self.requested.milli < other.requested.milli


@dataclass(frozen=True, slots=True)
class PacedWish:
    """The part of a user's wish that is answered now."""

    asked: AskedWish
    left: float
    """Changes that may still be answered at once."""
    at: float
    """Seconds, on a clock that never goes back, when that was so."""


def first(asked: AskedWish, now: float, burst: int) -> PacedWish:
    """Return the state of a pod seen for the first time."""
    return PacedWish(asked, float(burst), now)


def paced(before: PacedWish, asked: AskedWish, now: float, *, burst: int, seconds: float) -> tuple[PacedWish, float]:
    """Return what is answered at ``now``, and in how many seconds to ask again; 0: all of ``asked`` is answered.

    ``seconds``: time after which one more change may be answered, up to ``burst`` of them; 0: no limit.
    """
    if asked == before.asked:
        return before, 0.0
    if not seconds or asked.less_than(before.asked):
        return replace(before, asked=asked), 0.0
    left = min(float(burst), before.left + (now - before.at) / seconds)
    if left < 1:
        return before, (1 - left) * seconds
    return PacedWish(asked, left - 1, now), 0.0
