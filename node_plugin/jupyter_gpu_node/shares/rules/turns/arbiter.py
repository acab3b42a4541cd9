"""Gives one GPU to its shares, in turns, and charges them for their use. Pure: the time is the argument ``now``.

Nothing here waits: each event returns the orders that follow from it, and `Arbiter.wake` says when to call
`Arbiter.tick` if nothing else happens. At most one share has the GPU at any moment. Which share is next, and for how
long: `order`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping

from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .bank import Deposit
from .ledger import Debt, Ledger, TimeAccount
from .order import TurnOrdering
from .periods import Periods
from .rule import Rule
from .switching import SwitchingCost
from .timing import Timing
from .turn_orders import TurnGrant, TurnOrder, TurnOverdue, TurnRevoke
from .turn_state import Turn, TurnShare, waiting_shares

DRAIN = 60_000_000
"""Grace of a turn in which a program must end what it queued on a whole GPU, where nothing limits that."""
LONG_KERNEL = 10_000_000
"""Grace of a share that says, when asked for the GPU, that its work takes longer: a kernel cannot be interrupted."""


class Arbiter:
    """The arbiter of one GPU. The ``now`` of any method must never be before the last one.

    ``order``: makes the order of turns; another one is for comparisons.
    """

    def __init__(self, timing: Timing, now: int, order: Callable[[Timing], TurnOrdering] = TurnOrdering) -> None:
        self.timing = timing
        self._shares: dict[str, TurnShare] = {}
        self._turn: Turn | None = None
        self._turns = 0
        self._opens = now
        """Time before which no share is given the GPU."""
        self._rule = Rule()
        self._order = order(timing)
        self._switching = SwitchingCost(timing)
        self._periods = Periods(timing, now, self._shares, self._order, self._switching)
        self._debts: dict[str, Debt] = {}
        """Debts of removed shares, until `take_debts`."""

    @property
    def _now(self) -> int:
        return self._periods.now

    def _pass(self, now: int) -> None:
        self._periods.pass_to(now, self._turn, self._rule)

    @property
    def holder(self) -> str | None:
        """Name of the share that has the GPU."""
        return self._turn.share.name if self._turn else None

    @property
    def shares(self) -> Mapping[str, TurnShare]:
        """The shares by name."""
        return self._shares

    @property
    def unpaid(self) -> int:
        """Cost of the changes of hands in this period that is not yet charged to any share."""
        return self._switching.unpaid

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
        from before; ``heirs``: by new share a removed one that still has the GPU, whose debt the new one takes over.
        0 milli: a guest. Raises `ValueError` if a GPU would be given away more than once; nothing is changed then.
        """
        after = {name: share.ledger.milli for name, share in self._shares.items()} | milli
        if sum(after.values()) > MILLI_PER_GPU or min(milli.values(), default=0) < 0:
            raise ValueError(f"Shares of one GPU are at least 0 and together at most {MILLI_PER_GPU}, not {after}.")
        self._pass(now)
        for name, amount in milli.items():
            if name in self._shares:
                self._shares[name].ledger.resize(amount, (savings or {}).get(name, amount))
            else:
                first = self.timing.slice(amount) * self._periods.remaining // self.timing.period
                first -= (owes or {}).get(name, 0)
                ledger = Ledger(amount, self.timing, first, (deposits or {}).get(name, ()))
                ledger.resize(amount, (savings or {}).get(name, amount))
                self._shares[name] = TurnShare(name, ledger, credit=self._switching.credit, counted=self._now)
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
        gone.ledger.slice = -gone.ledger.ahead(self._periods.remaining)  # it earns no more
        gone.closed = self._now
        if self._turn is None or self._turn.share is not gone:
            self._leave_debt(gone)
        return self._decide()

    def _leave_debt(self, gone: TurnShare) -> None:
        debt = gone.debt()
        if gone.heir and self._shares.get(gone.heir.name) is gone.heir:
            gone.heir.ledger.slice -= debt.owed(self._now)
        elif debt.owed(self._now):
            self._debts[gone.name] = debt

    def owes(self, share: str, now: int) -> Debt:
        """Return what ``share`` owes; it may be removed and still have the GPU."""
        self._pass(now)
        if one := self._shares.get(share):
            return Debt(max(0, one.ledger.ahead(self._periods.remaining)), self._now, one.ledger.milli)
        if self._turn and self._turn.share.name == share:
            return self._turn.share.debt()
        return Debt(0, self._now, 0)

    def take_debts(self) -> dict[str, Debt]:
        """Return the debts of removed shares without heirs that have given the GPU back since the last call."""
        debts, self._debts = self._debts, {}
        return debts

    # --- turns --------------------------------------------------------------------------------------------------------

    def rest(self, until: int) -> None:
        """Give the GPU to no share before ``until``: a share that is not known yet may have it."""
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
            if now - one.ended >= self._rest_of(one):
                one.had = one.delayed = 0
        one.want = want
        return self._decide()

    def _rest_of(self, one: TurnShare) -> int:
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
            self._switching.refund(one, self._shares.values(), lasted, work)
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
        others = [*self._waiting(), *([holder] if holder else [])]
        contested = any(other is not one and not other.guest for other in others)
        one.ledger.run_beside(work, self._now, contested=contested)
        return self._decide()

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
        if self.rests(now) or one.pause:
            return False
        if not strictly:
            rivals = [*others, holder] if holder and holder.name not in members else others
            return one.ledger.has_claim(now) or not any(other.ledger.has_claim(now) for other in rivals)
        held = self._turn and self._turn.asked is None and self._turn.share.name not in members
        if self._turn and held and not self._must_end(self._turn, [one]):
            return False
        return self._order.first([one, *others], self._now) is one

    def tick(self, now: int) -> tuple[TurnOrder, ...]:
        """Handle the passing of time alone."""
        self._pass(now)
        return self._decide()

    @property
    def wake(self) -> int | None:
        """Time when something changes by itself; None: never. The GPU is at rest while no share wants it."""
        turn = self._turn
        if turn is None:
            return self._opens if self._rivals() else self._pause_ends()
        if turn.asked is not None:
            return None if turn.reported else turn.asked + max(self.timing.grace, turn.grace)
        waiting = self._rivals()
        if turn.once:
            return max(self._now + 1, turn.until)
        if not waiting:
            return turn.extend
        times = [turn.until, self._periods.ends]
        if claim := turn.share.ledger.claim_time(self._now):
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
            if turn.reported or now < turn.asked + max(self.timing.grace, turn.grace):
                return ()
            turn.reported = True
            return (TurnOverdue(turn.share.name, turn.asked),)
        if self._must_end(turn, waiting):
            turn.asked = now
            return (TurnRevoke(turn.share.name, turn.number),)
        if not turn.once and now >= (turn.until if waiting else turn.extend):
            return (self._run_until(turn, self._order.until(turn.share, 0, waiting, now)),)
        return ()

    def _next(self, waiting: list[TurnShare]) -> tuple[TurnOrder, ...]:
        if not waiting or self.rests(self._now):
            return ()
        first = self._rule.preferred(waiting) or self._order.first(waiting, self._now)
        waiting = [one for one in waiting if one is not first and (first.guest or not one.guest)]
        return (self._begin(first, first.want or 0, waiting),)

    def _begin(self, one: TurnShare, want: int, waiting: list[TurnShare]) -> TurnGrant:
        one.since = self._now
        self._turns += 1
        once = self._rule.once and one.name == self._rule.first
        self._turn = Turn(one, self._turns, self._now, once=once, yielded=self._order.due)
        until = self._now + self.timing.lease if once else self._order.until(one, want, waiting, self._now)
        return self._run_until(self._turn, until)

    def _run_until(self, turn: Turn, until: int) -> TurnGrant:
        turn.until = until
        turn.extend = until - (until - self._now) // 4
        return TurnGrant(turn.share.name, until, turn.number, turn.once)

    def _must_end(self, turn: Turn, waiting: list[TurnShare]) -> bool:
        removed = self._shares.get(turn.share.name) is not turn.share
        return removed or self._order.must_end(turn, waiting, self._rule, self._now)

    def _waiting(self) -> list[TurnShare]:
        return waiting_shares(self._shares.values(), self._turn)

    def _rivals(self) -> list[TurnShare]:
        """Return the waiting shares that may be given the GPU: no guest's while another share has it, or in a pause."""
        waiting, barred = self._waiting(), self._rule.barred
        held = self._turn is not None and not self._turn.share.guest
        waiting = [one for one in waiting if not one.guest or not (held or one.pause)]
        return [one for one in waiting if one.name not in barred] if barred else waiting

    def _pause_ends(self) -> int | None:
        """Return when the first of the guests that wait may have the GPU, which nobody else wants."""
        pauses = [one.pause for one in self._waiting() if one.pause and one.name not in self._rule.barred]
        return max(self._opens, self._now + min(pauses)) if pauses else None
