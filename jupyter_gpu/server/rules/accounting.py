"""The account of a server's use: how long it held each GPU, and how much of that time it was busy. Pure.

Held time is counted from the changes of the view, and is exact. Busy time of a time share comes from the account that
its node keeps. Busy time of a whole GPU is known only while it was watched (a panel, ``jupyter gpu watch``), as samples
are taken only then; it is returned together with the watched time. Nothing is estimated.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.view import GpuState, Sample, View

if TYPE_CHECKING:  # loaded with the first GPU that is held, not when a server starts
    from jupyter_gpu.model.share import ShareUse
    from jupyter_gpu.model.usage import GpuUse, Usage

_HELD = frozenset({GpuState.ATTACHED, GpuState.DRAINING, GpuState.UNHEALTHY})
_LONGEST = 2.0
"""The longest time that a sample stands for, in intervals: it does not stand for a pause before it."""
_US = 1_000_000


class _Held(NamedTuple):
    """A GPU of which some is held."""

    uuid: str
    milli: int
    number: int
    """Its ``index`` in `GpuUse`; so ``node``."""
    model: str
    node: str = ""


class HoldingAccount(NamedTuple):
    """The account of one server; each change makes a new one. Times are in seconds on the caller's clock."""

    at: float
    """Time up to which it counts."""
    holding: Mapping[str, int] = MappingProxyType({})
    """Milli of each GPU that is held now."""
    uses: Mapping[str, GpuUse] = MappingProxyType({})
    sampled: float | None = None
    """Time of the last sample."""
    shares: Mapping[str, ShareUse] = MappingProxyType({})
    """The node's last account of each share that is held."""

    def usage(self, since: float, seconds: float) -> Usage:
        """Return the usage; ``since`` is the time of day when it began."""
        from jupyter_gpu.model.usage import Usage

        return Usage(since, seconds, tuple(sorted(self.uses.values(), key=lambda use: (use.node, use.index, use.uuid))))


def advanced(account: HoldingAccount, now: float) -> HoldingAccount:
    """Count what is held until ``now``; a clock that went back counts nothing."""
    passed = max(0.0, now - account.at)
    uses = dict(account.uses)
    for uuid, milli in account.holding.items():
        uses[uuid] = _held(uses[uuid], milli, passed)
    return account._replace(at=max(account.at, now), uses=uses)


def seen(account: HoldingAccount, view: View, now: float) -> HoldingAccount:
    """Count from ``now`` on what ``view`` shows as held."""
    account = advanced(account, now)
    held = {item.uuid: item for item in (*_own(view), *_elsewhere(view))}
    uses = {**account.uses, **{uuid: _named(account.uses.get(uuid), item) for uuid, item in held.items()}}
    shares = {uuid: share for uuid, share in account.shares.items() if uuid in held}
    return account._replace(holding={uuid: item.milli for uuid, item in held.items()}, uses=uses, shares=shares)


def _own(view: View) -> Iterator[_Held]:
    for item in view.gpus:
        if item.state in _HELD:
            yield _Held(item.gpu.uuid, item.milli, item.gpu.index, item.gpu.model)


def _elsewhere(view: View) -> Iterator[_Held]:
    """Yield the GPUs of other nodes, whose models are known once their worker has told them."""
    for worker in view.workers:
        models = [kind.model for kind in worker.kinds] or [""] * len(worker.gpus)
        for number, (share, model) in enumerate(zip(worker.gpus, models, strict=False)):
            yield _Held(share.uuid, share.milli, number, model, worker.node)


def sampled(account: HoldingAccount, sample: Sample, now: float, interval: float) -> HoldingAccount:
    """Count the load of whole GPUs since the sample before, and the accounts of shares."""
    account = advanced(account, now)
    passed = interval if account.sampled is None else max(0.0, now - account.sampled)
    passed = passed if passed <= _LONGEST * interval else interval
    uses, shares = dict(account.uses), dict(account.shares)
    for uuid, milli in account.holding.items():
        load, share = sample.loads.get(uuid), sample.shares.get(uuid)
        if share is not None and milli < MILLI_PER_GPU:
            uses[uuid] = _with_share(uses[uuid], shares.get(uuid), share)
            shares[uuid] = share
        elif milli == MILLI_PER_GPU and load is not None and load.utilisation is not None:
            uses[uuid] = _watched(uses[uuid], passed, load.utilisation / 100)
    return account._replace(uses=uses, shares=shares, sampled=now)


def _held(use: GpuUse, milli: int, passed: float) -> GpuUse:
    if milli == MILLI_PER_GPU:
        return replace(use, whole=use.whole + passed)
    return replace(use, shared=use.shared + passed, worth=use.worth + passed * milli / MILLI_PER_GPU)


def _watched(use: GpuUse, passed: float, busy: float) -> GpuUse:
    known = min(passed, max(0.0, use.whole - use.watched))  # a sample does not speak of the time before it was held
    return replace(use, watched=use.watched + known, busy=use.busy + known * busy)


def _named(use: GpuUse | None, item: _Held) -> GpuUse:
    if use is None:
        from jupyter_gpu.model.usage import GpuUse

        return GpuUse(item.uuid, item.number, item.model, node=item.node)
    return replace(use, index=item.number, model=item.model or use.model)


def _with_share(use: GpuUse, before: ShareUse | None, share: ShareUse) -> GpuUse:
    """Add what the share ran since ``before``. Totals that fell have started again from 0."""
    ran, waited = _ran(share), share.waited
    if before is not None and before.waited <= waited and before.borrowed <= share.borrowed:
        ran, waited = max(0, ran - _ran(before)), waited - before.waited
    return replace(use, ran=use.ran + ran / _US, waited=use.waited + waited / _US)


def _ran(share: ShareUse) -> int:
    return share.guaranteed + share.borrowed + share.idle + share.overrun
