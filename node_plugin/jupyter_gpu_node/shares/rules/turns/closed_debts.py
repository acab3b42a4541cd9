"""Debts of closed shares: each is owed by the share of its name that comes after it. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from .ledger import Debt


class ClosedDebts:
    """Debts of the closed shares of one GPU, by name."""

    def __init__(self) -> None:
        self._debts: dict[str, Debt] = {}

    def add(self, name: str, debt: Debt, now: int) -> None:
        """Add what a share owed when it was closed."""
        before = self._debts.get(name)
        self._debts[name] = Debt(debt.owed(now) + before.owed(now), now, before.milli) if before else debt

    def take(self, name: str, now: int) -> int:
        """Return what the share of that name owes from before, and forget it."""
        debt = self._debts.pop(name, None)
        return debt.owed(now) if debt else 0

    def total(self, name: str, open_debts: Iterable[Debt], now: int) -> Debt:
        """Return what the shares of that name owe together: those that are open, or have the GPU still, and before."""
        debts = [*open_debts, *([self._debts[name]] if name in self._debts else [])]
        if len(debts) == 1:
            return debts[0]
        return Debt(sum(one.owed(now) for one in debts), now, debts[0].milli if debts else 0)

    def names(self, now: int) -> set[str]:
        """Return the names of shares that owe something yet; the others are forgotten."""
        self._debts = {name: debt for name, debt in self._debts.items() if debt.owed(now)}
        return set(self._debts)
