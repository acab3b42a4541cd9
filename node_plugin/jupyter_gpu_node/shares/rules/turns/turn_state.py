"""The state that an `Arbiter` keeps of each share, and of the present turn. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from .ledger import Debt, Ledger


@dataclass(slots=True, eq=False)
class TurnShare:
    """One share: its books, and what it wants now."""

    name: str
    ledger: Ledger
    want: int | None = None
    """Microseconds that it asked for, 0 for as many as it gets; None: no demand."""
    since: int = 0
    """Time since when it waits."""
    had: int = 0
    """GPU time since its demand began."""
    delayed: int = 0
    """Time since then for which a guest kept it waiting."""
    pause: int = 0
    """Microseconds for which the others must rest before a guest has the GPU again."""
    ended: int = 0
    """Time when its demand ended."""
    shown: float | None = None
    """The recent mean cost of its changes of hands as its programs report it; None: they have reported none."""
    credit: float = 0
    """The sum that may be refunded of its turns."""
    counted: int = 0
    """Time up to which its use is charged: the end of its last turn, or later if it has reported work since."""
    closed: int | None = None
    """Time when it was removed."""
    heir: TurnShare | None = None
    """The share that owes what this one does, which was removed and has the GPU still."""

    @property
    def guest(self) -> bool:
        """Whether it runs only while no other share has work."""
        return self.ledger.guest

    def debt(self) -> Debt:
        """Return what it owes since it was removed."""
        return Debt(max(0, -self.ledger.slice), self.closed or 0, self.ledger.milli)


@dataclass(slots=True)
class Turn:
    """The turn of the share that has the GPU."""

    share: TurnShare
    number: int
    began: int
    until: int = 0
    extend: int = 0
    """Time to extend ``until`` if no other share wants the GPU: before the end, so that the program does not notice."""
    asked: int | None = None
    """Time when it was asked to give the GPU back."""
    reported: bool = False
    """Whether its being overdue was reported."""
    grace: int = 0
    """Grace beyond the usual: what it has on the GPU was not limited when it was put there."""
    once: bool = False
    """Whether it is for one launch."""
    yielded: bool = False
    """Whether a long burst yielded this turn to the share."""


def waiting_shares(shares: Iterable[TurnShare], turn: Turn | None) -> list[TurnShare]:
    """Return the shares that have demand and not the GPU."""
    holder = turn.share if turn else None
    return [one for one in shares if one.want is not None and one is not holder]
