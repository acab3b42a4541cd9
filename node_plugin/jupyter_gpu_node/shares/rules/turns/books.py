"""Books of one GPU, updated once a period: each share's use of what it earns, and so what it earns next. Pure.

Joins the accounts of the arbiter with co-adjustment, and makes the contents of the files.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.share import GuestUse, ShareUse
from jupyter_gpu_node.shares.rules import share_file
from jupyter_gpu_node.shares.rules.share_file import ShareFile

from . import elastic
from .elasticity import Elastic
from .lease_manager import LeaseManager
from .ledger import TimeAccount
from .served_share import ServedShare

MAX_BYTES = 2**53 - 1
"""Largest reported memory size: a program may claim more, and its file can still be read."""


@dataclass(frozen=True, slots=True)
class ShareFigures:
    """The known figures of one share at one moment."""

    account: TimeAccount
    allocated: int
    effective: int
    use: float
    """Part of its earnings that it used lately."""
    reason: str
    """Reason for the effective milli."""
    sharing: int
    """Number of shares on the GPU."""
    running: bool
    """Whether it has the GPU now."""
    memory: int
    """Bytes in use by all its processes."""
    limit: int | None
    """Limit on these bytes; None: none."""
    clients: int
    """Number of connected processes."""
    busy: float | None
    """The part of the last period in which the GPU worked, for any share; None: there was none yet."""


class GpuBooks:
    """The books of one GPU. ``rules`` None: shares keep what they were given."""

    def __init__(self, rules: Elastic | None, now: int) -> None:
        self._rules = rules
        self._updated = now
        self._before: dict[str, TimeAccount] = {}
        self._states: Mapping[str, elastic.ElasticState] = {}
        self._uses: dict[str, float] = {}
        self._busy: float | None = None
        self._lent = 0.0
        """The part of the last period in which guests ran."""

    def end_period(self, manager: LeaseManager, now: int) -> dict[str, int]:
        """Return, at the end of a period, what each time share should earn from now on."""
        passed, self._updated = now - self._updated, now
        if passed <= 0:
            return {}
        accounts = {name: manager.account(name, now) for name in manager.shares}
        seen = {
            name: elastic.PeriodUse.between(max(1, share.terms.milli), self._before.get(name), accounts[name], passed)
            for name, share in manager.shares.items()
        }
        worked = {name: _worked(one) - _worked(self._before.get(name)) for name, one in accounts.items()}
        self._busy = _fraction(sum(worked.values()), passed)
        self._lent = _fraction(sum(worked[name] for name, share in manager.shares.items() if share.guest), passed)
        for name, share in manager.shares.items():
            old = self._uses.get(name, 0.0)
            use = old + (seen[name].used / max(1, share.effective) - old) / 4
            self._uses[name] = use if use >= 0.001 else 0.0
        self._uses = {name: use for name, use in self._uses.items() if name in accounts}
        self._before = accounts
        shared = {name: one for name, one in seen.items() if _adjusts(manager.shares[name])}
        if self._rules is None or not shared:
            self._states = {}
            return {}
        outcome = elastic.adjust(self._states, shared, self._rules)
        self._states = outcome.states
        return outcome.effective

    def reset(self) -> None:
        """Forget the past, as shares came, went or were resized: what was lent is back with its owners."""
        self._states = {}

    def resume(self, manager: LeaseManager, previous: Mapping[str, elastic.PreviousState]) -> dict[str, int]:
        """Return what each share should earn after `reset`; ``previous``: states that an earlier server saved."""
        shared = {name: share.terms.milli for name, share in manager.shares.items() if _adjusts(share)}
        if self._rules is None or not any(name in shared for name in previous):
            return {}
        self._states = elastic.resume(shared, previous, self._rules)
        return {name: one.effective for name, one in self._states.items()}

    def usage(self, manager: LeaseManager, name: str, now: int) -> ShareFigures:
        """Return the figures of one share; `KeyError` if there is none."""
        share = manager.shares[name]
        state = self._states.get(name)
        return ShareFigures(
            account=manager.account(name, now),
            allocated=max(1, share.terms.milli),
            effective=max(1, share.effective),
            use=self._uses.get(name, 0.0),
            reason=state.reason if state else "",
            sharing=len(manager.shares),
            running=manager.holder is share,
            memory=share.pool.used,
            limit=share.pool.limit,
            clients=len(share.clients),
            busy=self._busy,
        )

    def share(self, manager: LeaseManager, gpu: str, name: str, now: int) -> ShareUse:
        """Return what one share's user sees of it on ``gpu``; `KeyError` if there is none."""
        known = self.usage(manager, name, now)
        account, timing = known.account, manager.arbiter.timing
        return ShareUse(
            uuid=gpu,
            allocated=known.allocated,
            effective=known.effective,
            guaranteed=max(0, account.guaranteed),
            borrowed=account.borrowed,
            idle=account.idle,
            overrun=max(0, account.overrun),
            switching=account.switching,
            waited=account.waited,
            throttled=account.throttled,
            lost=account.lost,
            balance=account.balance,
            cap=timing.cap(manager.shares[name].terms.milli),
            expires=None if account.expires is None else max(0, account.expires - now),
            sharing=known.sharing - 1,
            period=timing.period,
            busy=None if known.busy is None else round(known.busy, 3),
            reason=known.reason,
            memory_used=min(known.memory, MAX_BYTES),
            memory_limit=None if known.limit is None else min(known.limit, MAX_BYTES),
            guest=None if manager.shares[name].guest else self._guests(manager),
        )

    def _guests(self, manager: LeaseManager) -> GuestUse | None:
        """Return the use that guests make of the GPU; None: there are none."""
        memory = [share.pool.used for share in manager.shares.values() if share.guest]
        return GuestUse(round(self._lent, 3), min(sum(memory), MAX_BYTES)) if memory else None

    def file(self, manager: LeaseManager, gpu: str, name: str, now: int, wall: int) -> ShareFile:
        """Return the contents of the share's file, without the deposits."""
        use = round(self._uses.get(name, 0.0), 3)
        owes = manager.owes(name, now)
        worth = owes.owed(now) > share_file.SMALL
        return ShareFile(
            self.share(manager, gpu, name, now),
            use,
            wall,
            owes=(owes.owed(now), max(1, owes.milli)) if worth else (0, 0),
        )


def _adjusts(share: ServedShare) -> bool:
    """Tell whether co-adjustment changes what a share earns: a whole GPU stays whole, and a guest earns nothing."""
    return share.terms.milli < MILLI_PER_GPU and not share.guest


def _fraction(worked: int, passed: int) -> float:
    return min(1.0, max(0, worked) / passed)


def _worked(account: TimeAccount | None) -> int:
    """Return for how long the GPU worked for that share, out of all its accounts."""
    return account.guaranteed + account.borrowed + account.idle + account.overrun if account else 0
