"""The cost of guests for the other shares of one GPU, the owners, and how guests pay for it. Pure.

An owner that comes back waits until the guest's kernels have ended. If that takes long, the guest is given the GPU
again only after owners have rested for many times as long. So late guests cost a small part of the time at most,
however long their kernels are; and a guest whose kernels are short is not held back.

An owner's turn may be cut for another owner that has had less. The time for which a guest kept the first one waiting
counts for that, so the second one does not wait for the guest as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from .timing import Timing
from .turn_state import Turn, TurnShare

LATE = 3_000
"""Microseconds after which a guest that was asked for the GPU is late: two kernels of 1 ms, and two messages."""
PAUSE = 256
"""Rest of the owners that each microsecond costs by which it is late."""
LONGEST_PAUSE = 60_000_000
"""The most that it may have to wait for: as long as a GPU must do nothing before it counts as resting."""


def charge(
    turn: Turn | None, waiting: Collection[TurnShare], shares: Iterable[TurnShare], start: int, end: int
) -> None:
    """Count the time from ``start`` to ``end``, in which the owners ``waiting`` could have had the GPU."""
    if turn and not turn.share.guest:
        return
    if not waiting:
        for one in shares:
            if not turn or one is not turn.share:  # while a late one has the GPU still, owners do not rest
                one.pause = max(0, one.pause - (end - start))
    elif turn:
        for one in waiting:
            one.delayed += end - start
        if turn.asked is not None:
            late = max(0, end - max(start, turn.asked + LATE))
            turn.share.pause = min(LONGEST_PAUSE, turn.share.pause + PAUSE * late)


def counted(one: TurnShare, timing: Timing) -> int:
    """Return how much of the time for which guests kept a share waiting counts as time that it had.

    In whole steps of `Timing.least`, begun ones too, as its turn is checked in these: else the next owner would wait
    for the rest of a step. Never as much as makes a burst count as a longer one by itself: it keeps its shortest turn.
    """
    steps = -(-one.delayed // timing.least)
    return min(steps * timing.least, max(0, timing.lease // 4 - timing.least))
