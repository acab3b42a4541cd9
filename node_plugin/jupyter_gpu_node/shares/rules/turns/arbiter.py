"""The order and length of turns on one GPU, and when a turn is revoked. Pure: the clock comes in as ``now``.

Nothing here waits: each event returns the orders that follow from it, and `Arbiter.wake` says when to call
`Arbiter.tick` if nothing else happens. At most one share has the GPU at any moment.

Order of turns. A share with demand and a claim (quantum or bank) comes before a share with demand alone. Among those
with a claim, a share with saved time comes first, and of these the one that had least of the GPU since its demand
began: a burst is served before a hog that has savings, too (least attained service). Among those without savings: the
one furthest behind its quantum, then the one that has waited longest. Least-recent-use alone serves a bursty share
badly when its use is close to its part of the GPU; its saved time is exactly what tells it from a hog.

A share that saved for long can spend for long, and longest where it keeps a small share from its part. So a burst that
goes on leaves a quarter of the time to the others with a claim, in turn: they wait for some leases, not until it has
ended.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .bank import Deposit
from .ledger import NEITHER, SAVER, Debt, Ledger, TimeAccount
from .timing import Timing


@dataclass(frozen=True, slots=True)
class TurnGrant:
    """Permission for ``share`` to run until ``until``. Sent again with a later time while no other share wants the GPU.

    ``turn`` tells turns apart: a share that gave this one back already must not take an order about it for a new one.
    """

    share: str
    until: int
    turn: int
    once: bool = False
    """Whether it may start one launch only (`Rule`)."""


@dataclass(frozen=True, slots=True)
class TurnRevoke:
    """An order to ``share`` to give the GPU back as soon as what it let through has ended."""

    share: str
    turn: int


@dataclass(frozen=True, slots=True)
class TurnOverdue:
    """Notice that ``share``, asked for the GPU at ``since``, did not give it back within the grace. Once a turn."""

    share: str
    since: int


TurnOrder = TurnGrant | TurnRevoke | TurnOverdue


@dataclass(frozen=True, slots=True)
class Rule:
    """Changes to the order on one GPU for programs that wait for each other across GPUs (`gangs`)."""

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


LONG = 5
"""Bursts are told apart by powers of two of a quarter lease. One that had four leases goes on, and is long."""
LEAVES = 3
"""Leases of long bursts to one of the others."""
MORE = 1.1
"""How much more a change of hands may cost one share than its neighbours: a factor."""
REMEMBERED = 16
"""Turns over which that is averaged."""
DRAIN = 60_000_000
"""Grace of a turn in which a program must end what it queued on a whole GPU, where nothing limits that."""
LONG_KERNEL = 10_000_000
"""Grace of a share that says, when asked for the GPU, that its work takes longer: a kernel cannot be interrupted."""


@dataclass(slots=True, eq=False)
class _Share:
    """One share: its books, and what it wants now."""

    name: str
    ledger: Ledger
    want: int | None = None
    """Microseconds that it asked for, 0 for as many as it gets; None: no demand."""
    since: int = 0
    """Time since when it waits."""
    had: int = 0
    """GPU time since its demand began."""
    ended: int = 0
    """Time when its demand ended."""
    shown: float | None = None
    """The recent mean cost of its changes of hands as its programs report it; None: they have reported none."""
    credit: float = 0
    """The sum that may be refunded of its turns."""
    counted: int = 0
    """Time up to which its use is charged: the end of its last turn, and what it told of since."""
    closed: int | None = None
    """Time when it was removed."""
    heir: _Share | None = None
    """The share that owes what this one does, which was removed and has the GPU still."""


@dataclass(slots=True)
class _Turn:
    """The turn of the share that has the GPU."""

    share: _Share
    number: int
    began: int
    until: int = 0
    extend: int = 0
    """Time to extend ``until`` if no other share wants the GPU: before the end, so that the program does not notice."""
    asked: int | None = None
    """Time when it was asked to give the GPU back."""
    told: bool = False
    """Whether its being overdue was reported."""
    grace: int = 0
    """Grace beyond the usual: what it has on the GPU was not limited when it was put there."""
    once: bool = False
    """Whether it is for one launch."""
    left: bool = False
    """Whether a long burst left this turn to the share."""


def _debt(gone: _Share) -> Debt:
    return Debt(max(0, -gone.ledger.quantum), gone.closed or 0, gone.ledger.milli)


class Arbiter:
    """The arbiter of one GPU. The ``now`` of any method must never be before the last one."""

    def __init__(self, timing: Timing, now: int) -> None:
        self.timing = timing
        self._now = now
        self._ends = now + timing.period
        self._shares: dict[str, _Share] = {}
        self._turn: _Turn | None = None
        self._turns = 0
        self._opens = now
        """Time before which no share is given the GPU."""
        self._rule = Rule()
        self._burst = 0
        """GPU time of long bursts while others with a claim waited, less what these had since."""
        self._due = False
        """Whether these others are served now, in turn."""
        self.unpaid = 0
        """Cost of the switches in this period, not yet charged to any share."""
        self._debts: dict[str, Debt] = {}
        """Debts that shares left behind, until they are taken."""

    @property
    def holder(self) -> str | None:
        """Name of the share that has the GPU."""
        return self._turn.share.name if self._turn else None

    @property
    def milli(self) -> int:
        """Milli of all shares together."""
        return sum(share.ledger.milli for share in self._shares.values())

    def account(self, share: str, now: int) -> TimeAccount:
        """Return what ``share`` used, waited and has."""
        self._pass(now)
        return self._shares[share].ledger.account(now)

    def deposits(self, share: str) -> tuple[Deposit, ...]:
        """Return the deposits, to be kept where the next process finds them."""
        return self._shares[share].ledger.bank.deposits

    # --- shares -------------------------------------------------------------------------------------------------------

    def put(
        self,
        milli: dict[str, int],
        now: int,
        *,
        savings: dict[str, int] | None = None,
        deposits: dict[str, Iterable[Deposit]] | None = None,
        owes: Mapping[str, int] | None = None,
        heirs: Mapping[str, str] | None = None,
    ) -> tuple[TurnOrder, ...]:
        """Add and resize shares, all at once. New ones begin with what is left of this period, and with ``deposits``.

        ``savings``: by share the milli that its bank is for, if that is not what it earns. ``owes``: what new ones owe
        from before; ``heirs``: by new share a removed one that has the GPU still, and whose debt is its own. Raises
        `ValueError` if a GPU would be given away more than once; nothing is changed then.
        """
        after = {name: share.ledger.milli for name, share in self._shares.items()} | milli
        if sum(after.values()) > MILLI_PER_GPU or min(milli.values(), default=1) < 1:
            raise ValueError(f"Shares of one GPU are at least 1 and together at most {MILLI_PER_GPU}, not {after}.")
        self._pass(now)
        for name, amount in milli.items():
            if name in self._shares:
                self._shares[name].ledger.resize(amount, (savings or {}).get(name, amount))
            else:
                first = self.timing.quantum(amount) * (self._ends - self._now) // self.timing.period
                first -= (owes or {}).get(name, 0)
                ledger = Ledger(amount, self.timing, first, (deposits or {}).get(name, ()))
                ledger.resize(amount, (savings or {}).get(name, amount))
                self._shares[name] = _Share(name, ledger, credit=4 * self.timing.switch, counted=self._now)
                if self._turn and self._turn.share.name == (heirs or {}).get(name):
                    self._turn.share.heir = self._shares[name]
        return self._decide()

    def remove(self, share: str, now: int) -> tuple[TurnOrder, ...]:
        """Remove a share. If it has the GPU, it is revoked, and no other share gets the GPU before it is given back."""
        self._pass(now)
        gone = self._shares.pop(share, None)
        if gone is None:
            return ()
        gone.want = None
        gone.ledger.quantum = -gone.ledger.ahead(self._ends - self._now)  # it earns no more
        gone.closed = self._now
        if self._turn is None or self._turn.share is not gone:
            self._leave_debt(gone)
        return self._decide()

    def _leave_debt(self, gone: _Share) -> None:
        debt = _debt(gone)
        if gone.heir and self._shares.get(gone.heir.name) is gone.heir:
            gone.heir.ledger.quantum -= debt.left(self._now)
        elif debt.left(self._now):
            self._debts[gone.name] = debt

    def owes(self, share: str, now: int) -> Debt:
        """Return what ``share`` owes, which may be removed and have the GPU still."""
        self._pass(now)
        if one := self._shares.get(share):
            return Debt(max(0, one.ledger.ahead(self._ends - self._now)), self._now, one.ledger.milli)
        if self._turn and self._turn.share.name == share:
            return _debt(self._turn.share)
        return Debt(0, self._now, 0)

    def take_debts(self) -> dict[str, Debt]:
        """Return what removed shares owe that have given the GPU back since the last call, without heirs."""
        debts, self._debts = self._debts, {}
        return debts

    # --- turns --------------------------------------------------------------------------------------------------------

    def rest(self, until: int) -> None:
        """Give the GPU to no share before then: one that is not known yet may have it."""
        self._opens = until

    def rests(self, now: int) -> bool:
        """Tell whether the GPU still rests."""
        return now < self._opens

    def hold(self, share: str, now: int) -> tuple[TurnOrder, ...]:
        """Begin the turn of ``share``, which has the GPU already, from before, if the GPU rests and is free.

        It may have put more on it than is done within a grace.
        """
        self._pass(now)
        if self._turn is not None or not self.rests(now):
            return ()
        one = self._shares[share]
        one.want = one.want or 0
        orders = (self._begin(one, 0, [other for other in self._waiting() if other is not one]),)
        self.drains()
        return orders

    def drains(self, grace: int = DRAIN) -> None:
        """Grant the holder, which rightly queued more on the GPU than fits the usual grace, at least this grace."""
        if self._turn:
            self._turn.grace = max(self._turn.grace, grace)

    def ask(self, share: str, now: int, want: int = 0) -> tuple[TurnOrder, ...]:
        """Record that ``share`` has demand, for ``want`` microseconds if known. The last request counts."""
        self._pass(now)
        one = self._shares[share]
        if one.want is None:
            one.since = now
            one.had = 0 if now - one.ended >= self._rest_of(one) else one.had
        one.want = want
        return self._decide()

    def _rest_of(self, one: _Share) -> int:
        """Return the pause after which a share's demand counts as a new one: what it had, from a lease to a period.

        Training that waits for its results now and then is no new burst.
        """
        return max(self.timing.lease, min(one.had, self.timing.period))

    def release(self, share: str, now: int, want: int | None = None, work: int | None = None) -> tuple[TurnOrder, ...]:
        """Return the GPU from ``share``, or withdraw its demand; ``want``: it has demand all the same.

        ``work``: for how long its programs say that the GPU worked. The rest was the change of hands, which all pay. As
        the programs could lie, only a small part of a turn counts as that, and on average little more than for the
        neighbours.
        """
        self._pass(now)
        if self._turn and self._turn.share.name == share:
            one, began, self._turn = self._turn.share, self._turn.began, None
            lasted = self._now - began
            self._refund(one, lasted, work)
            if one.closed is not None:
                self._leave_debt(one)
            one.since = one.ended = one.counted = now
            one.want = want
        elif share in self._shares:
            self._shares[share].want = want
            self._shares[share].ended = now
        return self._decide()

    def charge(self, share: str, now: int, work: int) -> tuple[TurnOrder, ...]:
        """Charge ``share`` for ``work`` microseconds that its programs say they used without a turn.

        At most the time that passed since its last turn and was not charged yet, of one period: one GPU does no more,
        and a false report bars no share for long. Use in a turn is charged by the clock, not here.
        """
        self._pass(now)
        one, holder = self._shares[share], self._turn.share if self._turn else None
        if one is holder:
            return ()
        since = max(one.counted, self._now - self.timing.period)
        work = min(work, self._now - since)
        one.counted = since + work
        contested = holder is not None or any(other is not one for other in self._waiting())
        one.ledger.run_beside(work, self._now, contested=contested)
        return self._decide()

    def _refund(self, one: _Share, lasted: int, work: int | None) -> None:
        others = sorted(other.shown for other in self._shares.values() if other is not one and other.shown is not None)
        if others:
            usual = MORE * others[(len(others) - 1) // 2]
            one.credit = min(4 * self.timing.switch, one.credit + usual)
        if work is not None:
            said = max(0, min(lasted - work, self.timing.switch))
            one.shown = said if one.shown is None else one.shown + (said - one.shown) / REMEMBERED
            refund = one.ledger.refund(int(min(said, lasted // 8, one.credit)))
            one.credit -= refund
            self.unpaid += refund

    # --- programs that need other GPUs at the same time ---------------------------------------------------------------

    def apply_rule(self, rule: Rule, now: int) -> tuple[TurnOrder, ...]:
        """Apply ``rule`` from now on."""
        self._pass(now)
        self._rule = rule
        return self._decide()

    def fits(self, share: str, members: Collection[str], now: int, *, strictly: bool) -> bool:
        """Tell whether a waiting ``share`` comes before all but ``members``: now, or ``strictly`` also in order."""
        self._pass(now)
        one, holder = self._shares[share], self._turn.share if self._turn else None
        others = [other for other in self._waiting() if other.name not in members]
        if self.rests(now):
            return False
        if not strictly:
            rivals = [*others, holder] if holder and holder.name not in members else others
            return one.ledger.claims(now) or not any(other.ledger.claims(now) for other in rivals)
        held = self._turn and self._turn.asked is None and self._turn.share.name not in members
        if self._turn and held and not self._must_end(self._turn, [one]):
            return False
        return min((one, *others), key=self._rank) is one

    def tick(self, now: int) -> tuple[TurnOrder, ...]:
        """Handle the passing of time alone."""
        self._pass(now)
        return self._decide()

    @property
    def wake(self) -> int | None:
        """Time when something changes by itself; None: never. The GPU is at rest while no share wants it."""
        turn = self._turn
        if turn is None:
            return self._opens if self._rivals() else None
        if turn.asked is not None:
            return None if turn.told else turn.asked + max(self.timing.grace, turn.grace)
        waiting = self._rivals()
        if turn.once:
            return max(self._now + 1, turn.until)
        if not waiting:
            return turn.extend
        times = [turn.until, self._ends]
        if claim := turn.share.ledger.claim(self._now):
            times.append(self._now + claim)
        if any(one.ledger.saved(self._now) for one in waiting):
            times.append(self._now + self.timing.least - (self._now - turn.began) % self.timing.least)
        return max(self._now + 1, min(times))

    # --- how it decides -----------------------------------------------------------------------------------------------

    def _decide(self) -> tuple[TurnOrder, ...]:
        now, turn = self._now, self._turn
        waiting = self._rivals()
        if turn is None:
            return self._next(waiting)
        if turn.asked is not None:
            if turn.told or now < turn.asked + max(self.timing.grace, turn.grace):
                return ()
            turn.told = True
            return (TurnOverdue(turn.share.name, turn.asked),)
        if self._must_end(turn, waiting):
            turn.asked = now
            return (TurnRevoke(turn.share.name, turn.number),)
        if not turn.once and now >= (turn.until if waiting else turn.extend):
            return (self._run_until(turn, self._until(turn.share, 0, waiting)),)
        return ()

    def _next(self, waiting: list[_Share]) -> tuple[TurnOrder, ...]:
        if not waiting or self.rests(self._now):
            return ()
        first = self._preferred(waiting) or (min(waiting, key=self._rank) if len(waiting) > 1 else waiting[0])
        waiting.remove(first)
        return (self._begin(first, first.want or 0, waiting),)

    def _preferred(self, waiting: list[_Share]) -> _Share | None:
        """Return the share that comes before all others because it has other GPUs already."""
        name = self._rule.first
        return next((one for one in waiting if one.name == name), None) if name is not None else None

    def _begin(self, one: _Share, want: int, waiting: list[_Share]) -> TurnGrant:
        one.since = self._now
        self._turns += 1
        self._turn = _Turn(
            one, self._turns, self._now, once=self._rule.once and one.name == self._rule.first, left=self._due
        )
        until = self._now + self.timing.lease if self._turn.once else self._until(one, want, waiting)
        return self._run_until(self._turn, until)

    def _run_until(self, turn: _Turn, until: int) -> TurnGrant:
        turn.until = until
        turn.extend = until - (until - self._now) // 4
        return TurnGrant(turn.share.name, until, turn.number, turn.once)

    def _must_end(self, turn: _Turn, waiting: list[_Share]) -> bool:
        now, holder = self._now, turn.share
        if self._shares.get(holder.name) is not holder:
            return True
        if turn.once and self._rule.once:
            return now >= turn.until
        if holder.name in self._rule.barred or self._preferred(waiting):
            return True
        if any(one.ledger.claims(now) for one in waiting):
            if not holder.ledger.claim(now):
                return True
            if now >= turn.began + self.timing.least and self._presses(holder, waiting):
                return True
        if not waiting or now < turn.until:
            return False
        return min(self._rank(one)[:2] for one in waiting) <= self._rank(holder)[:2]  # equals take turns of a lease

    def _rank(self, one: _Share) -> tuple[int, int, int]:
        """Return the sort key of a waiting share, least first. Finer steps would be switches for nothing."""
        ledger = one.ledger
        precedence = ledger.precedence(self._now)
        if precedence == NEITHER:
            return 3, ledger.freely * 1000 // ledger.milli, one.since
        had = self._had(one)
        if precedence == SAVER and had < LONG:
            return 0, had, one.since
        if self._due:
            return 1, 0, one.since
        return (1, had, one.since) if precedence == SAVER else (2, -ledger.left(), one.since)

    def _had(self, one: _Share) -> int:
        """Return what it had since its demand began, in powers of two."""
        return (4 * one.had // self.timing.lease).bit_length()

    def _until(self, one: _Share, want: int, waiting: list[_Share]) -> int:
        """Return when its turn ends if others wait: after what it wants, if known, what it may claim, or a lease."""
        slices = [self.timing.lease]
        if waiting and one.ledger.claims(self._now):
            slices.append(one.ledger.claim(self._now))
        if want:
            slices.append(want)
        return self._now + min(slices)

    def _waiting(self) -> list[_Share]:
        """Return the shares that have demand and not the GPU."""
        holder = self._turn.share if self._turn else None
        return [one for one in self._shares.values() if one.want is not None and one is not holder]

    def _rivals(self) -> list[_Share]:
        """Return the waiting shares that may be given the GPU."""
        waiting, barred = self._waiting(), self._rule.barred
        return [one for one in waiting if one.name not in barred] if barred else waiting

    def _presses(self, holder: _Share, waiting: list[_Share]) -> bool:
        """Tell whether a share with saved time waits and comes before the holder, whose lease has not ended yet."""
        there = self._rank(holder)[:2]
        return any(one.ledger.saved(self._now) and self._rank(one)[:2] < there for one in waiting)

    # --- time ---------------------------------------------------------------------------------------------------------

    def _pass(self, now: int) -> None:
        """Charge what passed since the last event, period by period."""
        now = max(now, self._now)
        while self._ends <= now and (self._turn or self._waiting()):
            self._charge(self._ends)
            self._share_switching()
            for name, one in self._shares.items():
                one.ledger.turn(self._ends)
                if name in self._rule.barred or name == self._rule.first:
                    one.ledger.forgo()
            self._ends += self.timing.period
        if self._ends <= now:
            periods = 1 + (now - self._ends) // self.timing.period
            last = self._ends + (periods - 1) * self.timing.period
            for one in self._shares.values():
                one.ledger.sleep(last, periods)
            self._ends = last + self.timing.period
        self._charge(now)

    def _share_switching(self) -> None:
        active = [one.ledger for one in self._shares.values() if one.ledger.active]
        total, all_of_it = sum(one.milli for one in active), self.unpaid
        for one in active:
            part = all_of_it * one.milli // total
            one.switch(part, self._now)
            self.unpaid -= part

    def _charge(self, end: int) -> None:
        start, self._now = self._now, end
        if start < end and self._turn:
            waiting = rivals = self._waiting()
            if self._rule.barred:
                waiting, rivals = self._deprived(waiting)
            claimed = any(one.ledger.claims(start) for one in rivals)
            self._leave(self._turn, start, end, claimed=claimed)
            self._turn.share.had += end - start
            self._turn.share.ledger.run(start, end, contested=bool(rivals), claimed=claimed)
            for one in waiting:
                one.ledger.wait(start, end)

    def _leave(self, turn: _Turn, start: int, end: int, *, claimed: bool) -> None:
        """Count what a long burst leaves to others, where they have a claim."""
        if not claimed:
            self._burst = 0
        elif turn.left and self._due:
            self._burst = max(0, self._burst - LEAVES * (end - start))
        elif self._had(turn.share) >= LONG and turn.share.ledger.precedence(start) == SAVER:
            self._burst += end - start
        self._due = self._burst >= LEAVES * self.timing.lease or (self._due and self._burst > 0)

    def _deprived(self, waiting: list[_Share]) -> tuple[list[_Share], list[_Share]]:
        """Return the shares that wait, also elsewhere for their group's turn, and those the holder pays against."""
        rule = self._rule
        if rule.first is None:
            return waiting, [one for one in waiting if one.name not in rule.barred or one.name in rule.contesting]
        elsewhere = [self._shares[name] for name in sorted(rule.contesting) if name in self._shares]
        waits = [*waiting, *(one for one in elsewhere if one.want is None)]
        pays = self._turn is not None and self._turn.share.name == rule.first
        return waits, [one for one in waits if one.name not in rule.barred or (pays and one.name in rule.contesting)]
