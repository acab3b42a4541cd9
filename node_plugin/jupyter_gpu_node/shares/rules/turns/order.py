"""The order and the length of turns on one GPU. Pure.

A share with demand and a claim (slice or bank) comes before a share with demand alone. Among those with a claim, a
share with saved time comes first, and of these the one that had least of the GPU since its demand began: a burst is
served before a hog that has savings, too (least attained service). Among those without savings: the one furthest behind
its slice, then the one that has waited longest. Least-recent-use alone serves a bursty share badly when its use is
close to its part of the GPU; its saved time is exactly what tells it from a hog.

A share that saved for long can spend for long, and would keep a small share waiting the longest. So a burst that goes
on leaves a quarter of the time to the others with a claim, in turn: they wait for some leases, not until it has ended.

A guest comes after all others, with or without a claim. Its turns are short, and end as soon as any of them has work;
what that costs the others: `guests`.
"""

from __future__ import annotations

from . import guests
from .ledger import NEITHER, SAVER
from .rule import Rule
from .timing import Timing
from .turn_state import Turn, TurnShare

LONG = 5
"""Bursts are distinguished by powers of two of a quarter lease. One that had four leases goes on, and is long."""
LEAVES = 3
"""Leases of long bursts for one lease of the others."""
GUEST_LEASE = 5_000
"""Longest turn of a guest: for so long, at most, its programs put work on the GPU that others then wait for."""


class TurnOrdering:
    """The order of the shares of one GPU. It remembers how long bursts went on while others had a claim."""

    def __init__(self, timing: Timing) -> None:
        self._timing = timing
        self._burst = 0
        """GPU time of long bursts while others with a claim waited, less what these had since."""
        self.due = False
        """Whether these others are served now, in turn."""

    def first(self, waiting: list[TurnShare], now: int) -> TurnShare:
        """Return the share whose turn is next; there must be one."""
        return min(waiting, key=lambda one: self.rank(one, now)) if len(waiting) > 1 else waiting[0]

    def must_end(self, turn: Turn, waiting: list[TurnShare], rule: Rule, now: int) -> bool:
        """Tell whether the holder must give the GPU back to one of those that wait."""
        holder = turn.share
        if turn.once and rule.once:
            return now >= turn.until
        if holder.name in rule.barred or rule.preferred(waiting):
            return True
        if holder.guest and any(not one.guest for one in waiting):
            return True
        if any(one.ledger.has_claim(now) for one in waiting):
            if not holder.ledger.claim_time(now):
                return True
            if now >= turn.began + self._timing.least and self.presses(holder, waiting, now):
                return True
        if not waiting or now < turn.until:
            return False
        # equals take turns of a lease
        return min(self.rank(one, now)[:2] for one in waiting) <= self.rank(holder, now)[:2]

    def until(self, one: TurnShare, want: int, waiting: list[TurnShare], now: int) -> int:
        """Return when its turn ends if others wait: after what it wants, if known, what it may claim, or a lease."""
        slices = [min(self._timing.lease, GUEST_LEASE) if one.guest else self._timing.lease]
        if waiting and one.ledger.has_claim(now):
            slices.append(one.ledger.claim_time(now))
        if want:
            slices.append(want)
        return now + min(slices)

    def charge(self, turn: Turn, start: int, end: int, *, claimed: bool) -> None:
        """Count the time that a long burst yields to others with a claim."""
        if not claimed:
            self._burst = 0
        elif turn.yielded and self.due:
            self._burst = max(0, self._burst - LEAVES * (end - start))
        elif self._had(turn.share) >= LONG and turn.share.ledger.precedence(start) == SAVER:
            self._burst += end - start
        self.due = self._burst >= LEAVES * self._timing.lease or (self.due and self._burst > 0)

    def rank(self, one: TurnShare, now: int) -> tuple[int, int, int]:
        """Return the sort key of a waiting share, least first. Finer steps would be switches for nothing."""
        ledger = one.ledger
        precedence = ledger.precedence(now)
        if one.guest:
            return 4, ledger.freely, one.since
        if precedence == NEITHER:
            return 3, ledger.freely * 1000 // ledger.milli, one.since
        had = self._had(one)
        if precedence == SAVER and had < LONG:
            return 0, had, one.since
        if self.due:
            return 1, 0, one.since
        return (1, had, one.since) if precedence == SAVER else (2, -ledger.behind(), one.since)

    def _had(self, one: TurnShare) -> int:
        """Return what it had since its demand began, in powers of two."""
        had = one.had + guests.counted(one, self._timing)
        return (4 * had // self._timing.lease).bit_length()

    def presses(self, holder: TurnShare, waiting: list[TurnShare], now: int) -> bool:
        """Tell whether a share with saved time waits and comes before the holder, whose lease has not ended yet."""
        there = self.rank(holder, now)[:2]
        return any(one.ledger.saved(now) and self.rank(one, now)[:2] < there for one in waiting)
