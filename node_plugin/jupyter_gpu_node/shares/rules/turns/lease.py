"""The lease of one GPU: which share has it, until when, and which clients it was given to. Pure.

All processes of a share run in the lease of their share, also beside each other: a grant goes to all that asked. At
most one share has clients with a lease at any moment.
"""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpu_node.shares.rules.protocol import FOREVER, Grant, Revoke

from .actions import Action, LeaseOverdue, Send
from .served_share import ServedShare, ShareClient
from .turn_orders import TurnGrant


class GpuLease:
    """The lease of one GPU. ``shares``: all that have clients, also those that are gone and only drain."""

    def __init__(self, shares: Mapping[str, ServedShare]) -> None:
        self._shares = shares
        self.holder: ServedShare | None = None
        """The share whose clients have the GPU."""
        self.until = 0
        self.once = False
        """Whether it is for one launch."""
        self.out: list[Action] = []
        """Actions that are not carried out yet."""

    def sent(self) -> list[Action]:
        """Return the actions to carry out now."""
        out, self.out = self.out, []
        return out

    def grant(self, share: ServedShare, order: TurnGrant, now: int) -> None:
        """Give the lease to that share, or prolong it."""
        fresh = self.holder is not share
        self.holder, self.until, self.once = share, order.until, order.once
        share.work = 0 if fresh else share.work
        if fresh or not (share.exclusive or share.revoked):
            self.extend(share, now)

    def extend(self, share: ServedShare, now: int) -> None:
        """Tell the lease's clients how long it lasts now, and give it to all others with work."""
        time = self._time(share, now)
        for client in share.clients:
            if client.holds:
                client.whole |= share.exclusive
                self.out.append(Send(client, self._grant(client, max(time, 1))))
            else:
                self.hand(client, now)

    def hand(self, client: ShareClient, now: int) -> None:
        """Give ``client`` the lease of its share, if it wants it and there is something left of it."""
        time = self._time(client.share, now)
        if client.want is not None and not client.holds and time > 0 and not (self.once and client.old):
            self._give(client, time)

    def give_on(self, client: ShareClient) -> None:
        """Give the lease, which was revoked, to one more client that has the GPU from the previous server."""
        self._give(client, 1)
        self.out.append(Send(client, Revoke(client.number)))

    def step(self, client: ShareClient, now: int, duration: int) -> None:
        """Give one more launch to a client whose work waits for that: no other share gets the GPU before.

        A client whose lease was given back on its behalf has none, and asks for a new one.
        """
        if client.holds and not client.share.gone:
            self.until = max(self.until, now + duration)
            self.out.append(Send(client, Grant(duration, client.number, once=True)))

    def revoke(self, share: ServedShare) -> None:
        """Ask the clients of that share to give the lease back."""
        if not share.revoked:
            share.revoked = True
            self.out += [Send(one, Revoke(one.number)) for one in share.clients if one.holds]

    def overdue(self, share: ServedShare, since: int) -> None:
        """Report the clients that have the lease still."""
        self.out.append(LeaseOverdue(share.name, since, tuple(one for one in share.clients if one.holds)))

    def shut(self, client: ShareClient, now: int) -> bool:
        """Tell whether the time of the lease that it has is over: then it launches nothing, whatever it has read."""
        return self.holder is client.share and not client.whole and now >= self.until

    def may_be_ahead(self, client: ShareClient) -> bool:
        """Tell whether no client of another share is there: then what is queued costs others no time."""
        share = client.share
        if not client.ahead or share.exclusive or share.guest:
            return False
        return not any(one.clients for one in self._shares.values() if one is not share)

    def _give(self, client: ShareClient, time: int) -> None:
        client.holds = True
        client.whole = time == FOREVER
        client.number += 1
        client.share.holding += 1
        once = self.once and not client.old
        self.out.append(Send(client, Grant(time, client.number, True) if once else self._grant(client, time)))

    def _grant(self, client: ShareClient, time: int) -> Grant:
        """Return the message; owners wait for all that a guest has queued, so that is what runs alone."""
        single = client.share.guest and client.single
        return Grant(time, client.number, ahead=self.may_be_ahead(client), single=single)

    def _time(self, share: ServedShare, now: int) -> int:
        return FOREVER if share.exclusive else self.until - now
