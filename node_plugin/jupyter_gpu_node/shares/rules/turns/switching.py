"""The cost of changes of hands on one GPU, which all its shares pay. Pure.

Programs report for how long the GPU worked in a turn; the rest of the turn was the change of hands. As they could lie,
only a small part of a turn counts as that, and on average little more than for the neighbours.
"""

from __future__ import annotations

from collections.abc import Iterable

from .timing import Timing
from .turn_state import TurnShare

MORE = 1.1
"""The most that a change of hands may cost one share, as a multiple of its neighbours' cost."""
REMEMBERED = 16
"""Turns over which that is averaged."""
MOST = 4
"""Longest changes of hands that may be refunded at once, after a rest."""


class SwitchingCost:
    """The cost of changes of hands in this period."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self.unpaid = 0
        """The cost that was refunded to shares, and is not yet charged to all."""

    @property
    def credit(self) -> int:
        """The most that may be refunded to one share, with which it begins."""
        return MOST * self._timing.switch

    def refund(self, one: TurnShare, others: Iterable[TurnShare], lasted: int, work: int | None) -> None:
        """Refund the part of a turn that was the change of hands; ``work``: for how long the GPU worked, if known.

        Not to a guest: the others would pay for it.
        """
        if one.guest:
            return
        shown = sorted(other.shown for other in others if other is not one and other.shown is not None)
        if shown:
            usual = MORE * shown[(len(shown) - 1) // 2]
            one.credit = min(self.credit, one.credit + usual)
        if work is not None:
            said = max(0, min(lasted - work, self._timing.switch))
            one.shown = said if one.shown is None else one.shown + (said - one.shown) / REMEMBERED
            refund = one.ledger.refund(int(min(said, lasted // 8, one.credit)))
            one.credit -= refund
            self.unpaid += refund

    def divide(self, shares: Iterable[TurnShare], now: int) -> None:
        """Charge it to the active shares, at the end of a period."""
        active = [one.ledger for one in shares if one.ledger.active and not one.guest]
        total, all_of_it = sum(one.milli for one in active), self.unpaid
        for one in active:
            part = all_of_it * one.milli // total
            one.switch(part, now)
            self.unpaid -= part
