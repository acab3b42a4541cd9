"""Leases of one GPU: joins its arbiter, which knows shares, with their clients, which are processes. Pure.

Each event returns what is to be sent. A share asks while any of its clients has work, and gives back when the last one
has. At most one share has clients with a lease at any moment, whatever clients send, omit or repeat.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.shares.rules.framing import Malformed
from jupyter_gpu_node.shares.rules.protocol import Ask, Done, FromClient

from .actions import Action, Close, Send
from .arbiter import LONG_KERNEL, Arbiter
from .bank import Deposit
from .closed_debts import ClosedDebts
from .demand import Demand
from .lease import GpuLease
from .ledger import Debt, TimeAccount
from .memory import MeasuredMemory, Pool
from .rule import Rule
from .served_share import ServedShare, ShareClient
from .terms import Terms
from .turn_orders import TurnGrant, TurnOrder, TurnRevoke

REST = 10_000_000
"""Microseconds between two ticks of a GPU that one share has for itself."""


class LeaseManager:
    """The manager of one GPU's leases, between its clients and its arbiter. As there, ``now`` never goes back."""

    def __init__(self, arbiter: Arbiter, now: int) -> None:
        self.arbiter = arbiter
        self._shares: dict[str, ServedShare] = {}
        self._keys: dict[str, ServedShare] = {}
        self._lease = GpuLease(self._keys)
        self._rule: Rule | None = None
        """The rule by pods."""
        self._ticked = now
        self._shares_made = 0
        self._debts = ClosedDebts()

    @property
    def shares(self) -> Mapping[str, ServedShare]:
        """The shares by name; those that are gone and only drain are not among them."""
        return self._shares

    @property
    def holder(self) -> ServedShare | None:
        """The share whose clients have the GPU."""
        return self._lease.holder

    @property
    def wake(self) -> int | None:
        """Time to call `tick` if nothing else happens; None: never."""
        time, holder = self.arbiter.wake, self._lease.holder
        if time is not None and holder is not None and holder.exclusive and not holder.revoked:
            return self._ticked + REST
        return time

    def account(self, name: str, now: int) -> TimeAccount:
        """Return what the share used, waited and has."""
        return self.arbiter.account(self._shares[name].key, now)

    def deposits(self, name: str) -> tuple[Deposit, ...]:
        """Return the deposits of its bank."""
        return self.arbiter.deposits(self._shares[name].key)

    def owes(self, name: str, now: int) -> Debt:
        """Return what the share of that name owes; it may be closed and still have the GPU."""
        share, holder = self._shares.get(name), self._lease.holder
        debts = [self.arbiter.owes(share.key, now)] if share else []
        if holder is not None and holder is not share and holder.name == name:
            debts.append(self.arbiter.owes(holder.key, now))
        return self._debts.total(name, debts, now)

    def closed(self, now: int) -> dict[str, Debt]:
        """Return what closed shares owe."""
        holder = self._lease.holder
        names = {*self._debts.names(now), *([holder.name] if holder else [])} - self._shares.keys()
        return {name: debt for name in names if (debt := self.owes(name, now)).owed(now)}

    # --- shares -------------------------------------------------------------------------------------------------------

    def set(
        self,
        terms: Mapping[str, Terms],
        now: int,
        deposits: Mapping[str, Iterable[Deposit]] | None = None,
        owes: Mapping[str, int] | None = None,
    ) -> list[Action]:
        """Set the shares from now on; new ones begin with ``deposits``, and with what they owe from before.

        A share not among them drains and goes.

        What was lent between shares is back with its owners. Raises `ValueError` if it is more than the GPU;
        nothing is changed then.
        """
        if (total := sum(one.milli for one in terms.values())) > MILLI_PER_GPU:
            raise ValueError(f"Shares of one GPU are together at most {MILLI_PER_GPU} thousandths of it, not {total}.")
        for share in [share for name, share in self._shares.items() if name not in terms]:
            self._remove(share, now)
        before = {name: (share.terms, share.exclusive) for name, share in self._shares.items()}
        owing, heirs = {}, {}
        for name in [name for name in terms if name not in self._shares]:
            share = self._add(name, terms[name])
            owing[share.key] = (owes or {}).get(name, 0) + self._debts.take(name, now)
            if self._lease.holder and self._lease.holder.name == name:
                heirs[share.key] = self._lease.holder.key
        saved = {self._shares[name].key: some for name, some in (deposits or {}).items() if name in self._shares}
        for name, share in self._shares.items():
            share.terms, share.effective = terms[name], terms[name].milli
        milli = {one.key: one.effective for one in self._shares.values()}
        orders = self.arbiter.put(milli, now, deposits=saved, owes=owing, heirs=heirs)
        self._carry_out(orders, now)
        if self._rule is not None:
            self._apply_rule(self._rule, now)
        for name, (old, whole) in before.items():
            self._change(self._shares[name], old, whole, now)
        return self._lease.sent()

    def adjust(self, effective: Mapping[str, int], now: int) -> list[Action]:
        """Lend between shares by what each earns; its bank stays that of its own milli. Raises `ValueError`."""
        found = {self._shares[name]: milli for name, milli in effective.items() if name in self._shares}
        known = {share: milli for share, milli in found.items() if not share.exclusive}
        savings = {share.key: share.terms.milli for share in known}
        orders = self.arbiter.put({share.key: milli for share, milli in known.items()}, now, savings=savings)
        for share, milli in known.items():
            share.effective = milli
        self._carry_out(orders, now)
        return self._lease.sent()

    def _add(self, name: str, terms: Terms) -> ServedShare:
        self._shares_made += 1
        share = ServedShare(name, f"{name}#{self._shares_made}", terms, terms.milli, Pool(terms.limit))
        self._shares[name] = self._keys[share.key] = share
        return share

    def _remove(self, share: ServedShare, now: int) -> None:
        del self._shares[share.name]
        share.gone = True
        orders = self.arbiter.remove(share.key, now)
        self._keep_debt(share, now)
        self._carry_out(orders, now)
        for client in list(share.clients):
            if not client.holds:
                self._dismiss(client)
        if self._lease.holder is not share:
            self._keys.pop(share.key, None)

    def _keep_debt(self, share: ServedShare, now: int) -> None:
        """Keep what a closed share owes for the one of its name that comes after it."""
        if debt := self.arbiter.take_debts().get(share.key):
            self._debts.add(share.name, debt, now)

    def _change(self, share: ServedShare, old: Terms, whole: bool, now: int) -> None:
        """Apply new terms to the clients of a share."""
        if old.limit != share.terms.limit:
            share.pool.limit = share.terms.limit
            self._say_memory(share)
        if share.exclusive and not whole:
            for client in share.clients:
                client.want = client.want or 0
            if self._lease.holder is share and not share.revoked:
                self._lease.extend(share, now)
            elif self._lease.holder is not share:
                self._report_want(share, now)
        elif whole and not share.exclusive and self._lease.holder is share:
            self.arbiter.drains()
            self._lease.revoke(share)  # nothing that runs was counted: it drains, and then waits for its turn like all

    # --- programs that need other GPUs at the same time ---------------------------------------------------------------

    @property
    def longest_turn(self) -> int:
        """Longest turn while others wait, in microseconds."""
        return self.arbiter.timing.lease

    def demand(self, pod: str) -> Demand | None:
        """Return that pod's state on this GPU; None: it has nothing, or all of it."""
        share, holder = self._shares.get(pod), self._lease.holder
        if holder is not None and holder.name == pod and not holder.exclusive:
            asked = holder.revoked or holder.gone
            return Demand(False, True, asked, self._lease.once, holder.terms.milli, holder.steps)
        if share is None or share.exclusive:
            return None
        return Demand(share.known_want is not None, False, False, False, share.terms.milli, share.steps)

    def apply_rule(self, rule: Rule, now: int) -> list[Action]:
        """Apply ``rule``, by pods, from now on."""
        self._rule = rule
        self._apply_rule(rule, now)
        return self._lease.sent()

    def _apply_rule(self, rule: Rule, now: int) -> None:
        keys = {name: share.key for name, share in self._shares.items()}
        barred, contesting = (
            frozenset(keys[name] for name in names if name in keys) for names in (rule.barred, rule.contesting)
        )
        first = keys.get(rule.first) if rule.first is not None else None
        self._carry_out(self.arbiter.apply_rule(Rule(first, rule.once, barred, contesting), now), now)

    def fits(self, pod: str, members: Collection[str], now: int, *, strictly: bool) -> bool:
        """Tell whether that pod, which waits, could have this GPU now, as far as pods outside its group go."""
        keys = [self._shares[name].key for name in members if name in self._shares]
        return self.arbiter.fits(self._shares[pod].key, keys, now, strictly=strictly)

    # --- after a restart ----------------------------------------------------------------------------------------------

    def rest(self, until: int) -> None:
        """Give the GPU to no other share until then: the share that had it by the previous server may still have it."""
        self.arbiter.rest(until)

    # --- clients ------------------------------------------------------------------------------------------------------

    def join(self, name: str, now: int) -> tuple[ShareClient, list[Action]]:
        """Add a process that connected to that share; `KeyError` if there is none."""
        share = self._shares[name]
        holder = self._lease.holder if self._lease.holder is not share else None
        far = holder and any(one.holds and self._lease.may_be_ahead(one) for one in holder.clients)
        client = ShareClient(share)
        share.clients[client] = None
        if holder and far and not holder.revoked:
            self._lease.extend(holder, now)  # from now on another share would wait for what is queued
        if share.exclusive:
            client.want = 0
            self._wanted(client, now)
        return client, self._lease.sent()

    def leave(self, client: ShareClient, now: int) -> list[Action]:
        """Remove a client whose connection ended, at either end: it gives everything back. Again: nothing."""
        share = client.share
        if client in share.clients:
            self._forget(client)
            self._apply_client_change(share, now)
        return self._lease.sent()

    def receive(self, client: ShareClient, message: FromClient, now: int) -> list[Action]:
        """Handle a client's message. Raises `Malformed` if impossible: the caller removes it then."""
        if client not in client.share.clients:
            return []
        if isinstance(message, Ask):
            client.want = message.want
            if message.keeps and client.holds and client.share.revoked:
                self.arbiter.drains(LONG_KERNEL)
                client.share.patient = client.share.patient or now
            elif message.keeps and self.arbiter.rests(now):
                self._kept(client, now)
            if message.stuck:
                self._lease.step(client, now, self.arbiter.timing.lease)
            self._wanted(client, now)
        elif isinstance(message, Done):
            self._done(client, message, now)
        else:
            # a gate sends this first
            client.old, client.ahead, client.single = not message.steps, message.ahead, message.single
            if not client.share.gone:
                client.share.pool.need(client, message.size)
            self._memory(client)
        return self._lease.sent()

    def measured(self, name: str, held: Mapping[ShareClient, MeasuredMemory], outside: int) -> list[Action]:
        """Record what, according to the driver, the clients of that share hold, and its other processes."""
        share = self._shares[name]
        if share.pool.measured(held, outside):
            self._say_memory(share)
        return self._lease.sent()

    def shut(self, client: ShareClient, now: int) -> bool:
        """Tell whether the time of the lease that it has is over: then it launches nothing, whatever it has read."""
        return self._lease.shut(client, now)

    def tick(self, now: int) -> list[Action]:
        """Handle the passing of time alone."""
        self._ticked = now
        self._carry_out(self.arbiter.tick(now), now)
        return self._lease.sent()

    def _kept(self, client: ShareClient, now: int) -> None:
        """Continue the turn of a client that has the GPU from the previous server: all of it, or unfinished work.

        If it has a share now, all of that drains first. Only one share can have it: others that claim it just want it.
        """
        share = client.share
        if self._lease.holder is None:
            self._carry_out(self.arbiter.hold(share.key, now), now)
            if self._lease.holder is share and not share.exclusive:
                self._lease.revoke(share)
        elif self._lease.holder is share and share.revoked and not client.holds:
            self._lease.give_on(client)

    def _wanted(self, client: ShareClient, now: int) -> None:
        share = client.share
        if self._lease.holder is not share:
            self._report_want(share, now)
        elif not share.revoked:
            self._lease.hand(client, now)

    def _done(self, client: ShareClient, message: Done, now: int) -> None:
        if message.number > client.number:
            raise Malformed(f"gives lease {message.number} back, and was given {client.number}")
        share = client.share
        client.want = message.want
        if not message.number and message.measured and not share.gone:
            self._carry_out(self.arbiter.charge(share.key, now, message.measured), now)
        if client.holds and message.number == client.number:
            client.holds = False
            share.holding -= 1
            share.work = None if share.work is None else share.work + message.measured
        if share.gone and not client.holds:
            self._dismiss(client)
        self._apply_client_change(share, now)
        if client.want is not None and self._lease.holder is share and not share.revoked:
            self._lease.hand(client, now)

    def _apply_client_change(self, share: ServedShare, now: int) -> None:
        """Apply a change in what some client of ``share`` wants or has."""
        if self._lease.holder is not share:
            self._report_want(share, now)
        elif not share.holding:
            self._give_back(share, now)

    def _report_want(self, share: ServedShare, now: int) -> None:
        """Tell the arbiter what a share without the GPU wants."""
        want = share.total_want()
        if share.gone or want == share.known_want:
            return
        share.known_want = want
        orders = self.arbiter.release(share.key, now) if want is None else self.arbiter.ask(share.key, now, want)
        self._carry_out(orders, now)

    def _give_back(self, share: ServedShare, now: int) -> None:
        self._lease.holder, share.revoked, share.patient = None, False, None
        share.known_want = None if share.gone else share.total_want()
        if share.gone:
            del self._keys[share.key]
        orders = self.arbiter.release(share.key, now, share.known_want, share.work)
        self._keep_debt(share, now)
        self._carry_out(orders, now)

    def _forget(self, client: ShareClient) -> None:
        share = client.share
        del share.clients[client]
        share.pool.leave(client)
        if client.holds:
            client.holds = False
            share.holding -= 1
            share.work = None

    def _dismiss(self, client: ShareClient) -> None:
        self._forget(client)
        self._lease.out.append(Close(client))

    # --- orders -------------------------------------------------------------------------------------------------------

    def _carry_out(self, orders: Iterable[TurnOrder], now: int) -> None:
        for order in orders:
            share = self._keys[order.share]
            if isinstance(order, TurnGrant):
                self._lease.grant(share, order, now)
            elif isinstance(order, TurnRevoke):
                self._lease.revoke(share)
            else:
                self._lease.overdue(share, order.since)

    def _say_memory(self, share: ServedShare) -> None:
        for client in share.clients:
            if client in share.pool:
                self._memory(client)

    def _memory(self, client: ShareClient) -> None:
        self._lease.out.append(Send(client, client.share.pool.message(client)))
