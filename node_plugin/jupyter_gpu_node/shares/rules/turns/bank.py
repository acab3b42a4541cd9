"""The bank of one share: unused time, deposited with its moment, spent oldest first, and lost when it expires. Pure.

After the burst buffer of CPU bandwidth control (``cpu.cfs_burst_us``, Linux 5.14), which has a cap, but no expiry:
there saved time may be spent however old it is, so that a neighbour can be surprised by savings of long ago.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Deposit:
    """A deposit of ``amount`` microseconds of GPU time, saved at the moment ``at``."""

    amount: int
    at: int


class Bank:
    """The savings of one share, at most ``cap``. A deposit can be spent before ``at + expiry``, not at that moment."""

    def __init__(self, cap: int, expiry: int, deposits: Iterable[Deposit] = ()) -> None:
        self.cap = cap
        self.expiry = expiry
        self.lost = 0
        """Microseconds that were saved and then expired, or were above the cap, since the start."""
        self._deposits: deque[Deposit] = deque()
        self._total = 0
        for one in sorted(deposits, key=lambda one: one.at):
            self.deposit(one.amount, one.at)

    @property
    def deposits(self) -> tuple[Deposit, ...]:
        """Oldest first; some may have expired."""
        return tuple(self._deposits)

    def balance(self, now: int) -> int:
        """Return the microseconds that have not expired."""
        if self._deposits and self._deposits[0].at + self.expiry <= now:
            self._expire(now)
        return self._total

    def expires(self, now: int) -> int | None:
        """Return when the oldest deposit will be lost; None: there is none."""
        self._expire(now)
        return self._deposits[0].at + self.expiry if self._deposits else None

    def deposit(self, amount: int, at: int) -> None:
        """Save ``amount``. Above the cap the oldest deposits are lost: they would expire first."""
        if amount > 0:
            self._deposits.append(Deposit(amount, at))
            self._total += amount
            self._make_room()

    def resize(self, cap: int) -> None:
        """Set another cap; what is above it is lost, oldest first."""
        self.cap = cap
        self._make_room()

    def reach(self, start: int) -> int:
        """Return for how long it can pay from ``start`` on without a gap: some may expire before they are reached."""
        if not self._deposits or self._deposits[0].at + self.expiry >= start + self._total:
            return self._total  # nothing expires before it is reached: the oldest would be the first
        moment = start
        for one in self._deposits:
            moment += max(0, min(one.amount, one.at + self.expiry - moment))
        return moment - start

    def spend(self, start: int, end: int) -> int:
        """Pay the time from ``start`` on, at most up to ``end``; return how much of it is paid."""
        moment = start
        while moment < end:
            self._expire(moment)
            if not self._deposits:
                break
            oldest = self._deposits[0]
            paid = min(oldest.amount, oldest.at + self.expiry - moment, end - moment)
            self._take(paid)
            moment += paid
        return moment - start

    def withdraw(self, most: int, now: int) -> int:
        """Withdraw up to ``most`` at one moment; return how much."""
        left = min(most, self.balance(now))
        taken = left
        while left:
            left -= self._take(left)
        return taken

    def _expire(self, now: int) -> None:
        while self._deposits and self._deposits[0].at + self.expiry <= now:
            gone = self._deposits.popleft().amount
            self._total -= gone
            self.lost += gone

    def _make_room(self) -> None:
        while self._total > self.cap:
            self.lost += self._take(self._total - self.cap)

    def _take(self, most: int) -> int:
        """Take up to ``most`` from the oldest deposit; return how much."""
        oldest = self._deposits.popleft()
        if oldest.amount > most:
            self._deposits.appendleft(Deposit(oldest.amount - most, oldest.at))
        taken = min(most, oldest.amount)
        self._total -= taken
        return taken
