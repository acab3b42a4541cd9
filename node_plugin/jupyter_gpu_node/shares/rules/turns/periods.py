"""The passing of time on one GPU: shares are charged for having it and for waiting, period by period. Pure."""

from __future__ import annotations

from collections.abc import Mapping

from . import guests
from .order import TurnOrdering
from .rule import Rule
from .switching import SwitchingCost
from .timing import Timing
from .turn_state import Turn, TurnShare, waiting_shares


class Periods:
    """The present time and period of one GPU. ``shares``: its shares by name, a live view."""

    def __init__(
        self,
        timing: Timing,
        now: int,
        shares: Mapping[str, TurnShare],
        order: TurnOrdering,
        switching: SwitchingCost,
    ) -> None:
        self._timing = timing
        self._shares = shares
        self._order = order
        self._switching = switching
        self.now = now
        self.ends = now + timing.period
        """End of the present period."""

    @property
    def remaining(self) -> int:
        """The microseconds that remain of this period."""
        return self.ends - self.now

    def pass_to(self, now: int, turn: Turn | None, rule: Rule) -> None:
        """Charge the time since the last event, with ``turn`` and ``rule`` as they were all that time."""
        now = max(now, self.now)
        while self.ends <= now and self._is_wanted(turn):
            self._charge(self.ends, turn, rule)
            self._switching.divide(self._shares.values(), self.now)
            for name, one in self._shares.items():
                one.ledger.end_period(self.ends)
                if name in rule.barred or name == rule.first:
                    one.ledger.cap_owed()
            self.ends += self._timing.period
        if self.ends <= now:
            periods = 1 + (now - self.ends) // self._timing.period
            last = self.ends + (periods - 1) * self._timing.period
            for one in self._shares.values():
                one.ledger.skip_idle_periods(last, periods)
            self.ends = last + self._timing.period
        self._charge(now, turn, rule)

    def _is_wanted(self, turn: Turn | None) -> bool:
        """Tell whether any share has demand; a guest's leaves the GPU idle for the others."""
        return bool(turn and not turn.share.guest) or any(not one.guest for one in self._waiting(turn))

    def _waiting(self, turn: Turn | None) -> list[TurnShare]:
        return waiting_shares(self._shares.values(), turn)

    def _charge(self, end: int, turn: Turn | None, rule: Rule) -> None:
        start, self.now = self.now, end
        owners = [one for one in self._waiting(turn) if not one.guest and one.name not in rule.barred]
        guests.charge(turn, owners, self._shares.values(), start, end)
        if start < end and turn:
            waits = rivals = self._waiting(turn)
            if rule.barred:
                waits, rivals = rule.deprived(waits, self._shares, turn.share)
            rivals = [one for one in rivals if not one.guest]
            claimed = any(one.ledger.has_claim(start) for one in rivals)
            self._order.charge(turn, start, end, claimed=claimed)
            turn.share.had += end - start
            turn.share.ledger.run(start, end, contested=bool(rivals), claimed=claimed)
            for one in waits:
                one.ledger.wait(start, end)
