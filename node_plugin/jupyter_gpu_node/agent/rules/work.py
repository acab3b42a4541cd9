"""Pure: whether a pod used a GPU that it has open, since the last look. What is not known counts as use."""

from __future__ import annotations

from dataclasses import dataclass

SIMULATED = 0.03
"""Part of a processor's time from which a simulated GPU counts as used: a program that only waits needs less."""


@dataclass(frozen=True, slots=True)
class TurnTotals:
    """Microseconds for which a share's programs had the GPU, or work and not the GPU, in all."""

    before: int | None
    """As it was at the last look; None: this is the first one."""
    now: int
    alone: bool
    """Whether programs compute in turns only, as the pod has a part of the GPU: then turns tell all there is."""

    @property
    def grew(self) -> bool:
        """Whether there was work since the last look."""
        return self.before is not None and self.before != self.now

    @property
    def tells(self) -> bool:
        """Whether turns alone say whether there was work."""
        return self.grew or self.alone


def used(turns: TurnTotals | None, seen: bool | None) -> bool:
    """Tell whether a pod used a GPU. ``turns``: None where its programs take none.

    ``seen``: whether the driver saw anything run; None: it does not tell. Asked only where turns leave it open.
    """
    if turns and turns.tells:
        return turns.grew
    return seen is not False
