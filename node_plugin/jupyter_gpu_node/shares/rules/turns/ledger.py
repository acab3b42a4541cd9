"""Ledger of one share: its slice of this period, its bank, and what it used and waited so far. Pure.

A *guest* earns nothing (0 milli): it has no slice, no bank, and pays for nothing. It only uses what is left.

Everything is charged by the wall clock, from the moment a turn begins to the moment it is given back. The cost of
switches is then taken out and paid by all that had demand, in proportion to their milli: short turns cost a share no
more than long ones, and all that passes is charged to some share.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .bank import Bank, Deposit
from .timing import Timing

MOST_BEHIND = 6
"""Quarters of a slice."""
SAVER, CLAIMANT, NEITHER = 0, 1, 2
"""Precedence of a share: it has saved time and may spend it; it has some of its slice; or nothing worth a turn."""


@dataclass(frozen=True, slots=True)
class Debt:
    """GPU time that a closed share owes, and would pay from its slices if it were open. Microseconds."""

    amount: int
    at: int
    milli: int
    """Its earnings, and so its payments, from ``at`` on."""

    def owed(self, now: int) -> int:
        """Return what is still owed at ``now``. A clock that went back forgives nothing."""
        pays = max(1, self.milli)  # a guest's debt fades, too
        return max(0, self.amount - pays * max(0, now - self.at) // MILLI_PER_GPU)


@dataclass(frozen=True, slots=True)
class TimeAccount:
    """One share's totals since it was made, and what it has at one moment. Microseconds."""

    guaranteed: int
    """Used from slices."""
    borrowed: int
    """Used from the bank."""
    idle: int
    """Used while no share with a claim wanted the GPU: free."""
    overrun: int
    """Used beyond its claim while others had one: owed."""
    switching: int
    """Its part of what changes of hands cost."""
    waited: int
    """Time with demand and without the GPU."""
    throttled: int
    """The part of it in which neither slice nor bank was left."""
    lost: int
    """Saved, but expired or above the cap."""
    slice: int
    """The rest of this period's slice; below zero: owed."""
    balance: int
    expires: int | None
    """Time when the next deposit is lost."""
    beside: int
    """The part of its use that its programs reported outside of turns."""


class Ledger:
    """The books of one share."""

    def __init__(self, milli: int, timing: Timing, slice_left: int, deposits: Iterable[Deposit] = ()) -> None:
        self._timing = timing
        self._earn(milli)
        self.slice = slice_left
        """The rest of this period's slice, and of earlier ones that it was kept from; below zero: owed."""
        self.bank = Bank(timing.cap(milli), timing.expiry, deposits)
        self.freely = 0
        """Idle time used lately: halved each period."""
        self._unserved = self._ran = self._beside = 0
        """Time that it waited in this period, and had the GPU."""
        self._guaranteed = self._borrowed = self._idle = self._overrun = self._switching = 0
        self._turn = (0, 0)
        """Time that this turn took from the slice, rightfully and as overrun."""
        self._waited = self._throttled = 0

    @property
    def guest(self) -> bool:
        """Whether it earns nothing."""
        return not self.milli

    @property
    def active(self) -> bool:
        """Whether it had demand in this period."""
        return self._unserved + self._ran > 0

    def claim_time(self, now: int) -> int:
        """Return for how many microseconds it has a right to run from ``now`` on. What it owes comes first."""
        return self.slice + self.bank.reach(now) if self.slice >= 0 else 0

    def precedence(self, now: int) -> int:
        """Return its right to a turn that is worth the switch. Savings come first: it left time unused.

        Crumbs of a slice wait until there is more, savings never.
        """
        if self.slice < 0:
            return NEITHER
        if not self.bank.balance(now):
            return CLAIMANT if self.slice >= self._worth else NEITHER
        least = self._timing.least
        return SAVER if self.slice >= least or self.claim_time(now) >= least else NEITHER

    def has_claim(self, now: int) -> bool:
        """Tell whether it has any right to a turn."""
        return self.precedence(now) < NEITHER

    def saved(self, now: int) -> bool:
        """Tell whether it has left time unused that it can still spend."""
        return self.slice >= 0 and self.bank.balance(now) > 0

    def behind(self) -> int:
        """Return how far behind its slice it is, in quarters of it: finer steps would cause useless switches.

        A share kept from its time for long, as others spent what they had saved, is not further ahead for that: it gets
        it back when they rest. Else each burst would be followed by a pause as long.
        """
        return min(4 * self.slice // max(1, self._earns), MOST_BEHIND)

    def _earn(self, milli: int) -> None:
        self.milli = milli
        self._earns = self._timing.slice(milli)
        self._worth = max(self._timing.least, min(self._timing.lease, self._earns) // 4)

    def resize(self, milli: int, savings: int) -> None:
        """Set what it earns from the next period on, ``milli``, and the milli whose cap its bank has, ``savings``.

        What was earned with milli on loan goes with them: else it would keep the lender waiting.
        """
        if self.slice > 0 and milli < self.milli:
            self.slice = self.slice * milli // self.milli
        self._earn(milli)
        self.bank.resize(self._timing.cap(savings))

    def ahead(self, rest: int) -> int:
        """Return how far it is ahead of what it has earned, ``rest`` microseconds before the end of the period.

        Each period's slice is its own from the start. Closing a share and opening it again must not give it two.
        """
        return self._earns * rest // self._timing.period - self.slice

    def run(self, start: int, end: int, *, contested: bool, claimed: bool) -> None:
        """Charge time with the GPU; ``contested``: others wanted it; ``claimed``: one of them with a claim.

        First its slice pays. Against others its bank does, and what is left where others have a claim is owed: a
        kernel cannot be interrupted. Time that no other share has a claim to is free.
        """
        self._ran += end - start
        paid = max(0, min(self.slice, end - start))
        self.slice -= paid
        self._guaranteed += paid
        start += paid
        from_slice, late = paid, 0
        if contested:
            paid = self.bank.spend(start, end)
            self._borrowed += paid
            start += paid
        if claimed:
            late = end - start
            self.slice -= 0 if self.guest else late
            self._overrun += late
        else:
            self._idle += end - start
            self.freely += end - start
        self._turn = (self._turn[0] + from_slice, self._turn[1] + late)

    def run_beside(self, work: int, now: int, *, contested: bool) -> None:
        """Charge ``work`` microseconds of the GPU that it took without a turn.

        Free where no other share had demand, else owed in full, whether or not others had a claim: they could not keep
        it from that time, nor ask it back.
        """
        self.run(now - work, now, contested=contested, claimed=contested)
        self._beside += work
        self._turn = 0, 0  # no part of it was a change of hands

    def refund(self, most: int) -> int:
        """Refund up to ``most`` of a turn at its end, the cost of the switch. Return how much it had paid of that."""
        (paid, late), self._turn = self._turn, (0, 0)
        first = min(most, late)
        second = min(most - first, paid)
        self._overrun -= first
        self._guaranteed -= second
        self.slice += first + second
        return first + second

    def switch(self, part: int, now: int) -> None:
        """Pay a part of all switches; the bank helps, so that a share with savings does not lose its right over it."""
        self.slice -= part
        self._switching += part
        if self.slice < 0:
            self.slice += self.bank.withdraw(-self.slice, now)

    def wait(self, start: int, end: int) -> None:
        """Count time in which it wanted the GPU and did not have it."""
        self._unserved += end - start
        self._waited += end - start
        if self.slice <= 0 and not self.claim_time(start):
            self._throttled += end - start

    def end_period(self, moment: int) -> None:
        """End a period at ``moment`` and begin the next.

        What it did not want is saved: at most the time in which it had no demand, and nothing that it was kept from
        while it waited. The rest is added to its next slice: it is owed to the share, and does not expire.
        """
        unwanted = max(0, self._timing.period - self._unserved - self._ran)
        saved = max(0, min(self.slice - self._unserved, unwanted))
        self.bank.deposit(saved, moment)
        self.slice += self._earns - saved
        self._unserved = self._ran = 0
        self.freely //= 2

    def cap_owed(self) -> None:
        """Limit what this GPU owes a share that needs several at once and was kept from its time here by another."""
        lost = max(0, self.slice - MOST_BEHIND * self._earns // 4)
        self.slice -= lost
        self.bank.lost += lost

    def skip_idle_periods(self, moment: int, periods: int) -> None:
        """Skip ``periods`` without demand, the last of them ending at ``moment``.

        Only as many are counted as leave something behind: what was saved before them would be above the cap or
        expired by now. So a GPU that no share wanted for a month costs nothing.
        """
        remembered = 2 + min(self._timing.expiry // self._timing.period, self.bank.cap // max(self._earns, 1))
        skipped = max(0, periods - remembered)
        if skipped:
            earned = self.slice + skipped * self._earns
            self.slice = min(self._earns, earned)
            self.bank.lost += earned - self.slice
            self.freely = 0
        for number in range(periods - skipped, 0, -1):
            self.end_period(moment - (number - 1) * self._timing.period)

    def account(self, now: int) -> TimeAccount:
        """Return the account that users see."""
        balance = self.bank.balance(now)  # first: it knows then what has expired
        return TimeAccount(
            self._guaranteed,
            self._borrowed,
            self._idle,
            self._overrun,
            self._switching,
            self._waited,
            self._throttled,
            self.bank.lost,
            self.slice,
            balance,
            self.bank.expires(now),
            self._beside,
        )
