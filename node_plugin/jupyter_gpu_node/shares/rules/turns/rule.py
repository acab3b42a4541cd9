"""Changes to the order of turns on one GPU for programs that wait for each other across GPUs (`gangs`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .turn_state import TurnShare


@dataclass(frozen=True, slots=True)
class Rule:
    """Changes to the order on one GPU."""

    first: str | None = None
    """Share that comes before all others, whatever they have saved: it has other GPUs already."""
    once: bool = False
    """Whether a turn is for one launch, and may last until that has ended: what runs on another GPU waits for it."""
    barred: frozenset[str] = frozenset()
    """Shares that get no turns."""
    contesting: frozenset[str] = frozenset()
    """Barred shares that could have turns if ``first`` had none, here or elsewhere: it pays against them. Without
    ``first``: the shares with a right to the GPUs for which it waits; all that have turns here meanwhile pay.
    """

    def preferred(self, waiting: list[TurnShare]) -> TurnShare | None:
        """Return the waiting share that comes before all others because it has other GPUs already."""
        return next((one for one in waiting if one.name == self.first), None) if self.first is not None else None

    def deprived(
        self, waiting: list[TurnShare], shares: Mapping[str, TurnShare], holder: TurnShare
    ) -> tuple[list[TurnShare], list[TurnShare]]:
        """Return the shares that wait, also elsewhere for their group's turn, and those that ``holder`` pays against.

        ``waiting``: those that wait here; ``shares``: all of this GPU, by name.
        """
        if self.first is None:
            return waiting, [one for one in waiting if one.name not in self.barred or one.name in self.contesting]
        elsewhere = [shares[name] for name in sorted(self.contesting) if name in shares]
        waits = [*waiting, *(one for one in elsewhere if one.want is None)]
        pays = holder.name == self.first
        return waits, [one for one in waits if one.name not in self.barred or (pays and one.name in self.contesting)]
