"""The owners of pods: the limits in force for each, the terms of their pods that follow, and the GPU time they used.

Decisions are made for one node, but a limit holds for all of an owner's pods together. So each change of a pod, of a
limit, or of the hour gives new terms to all pods of the owners concerned (`limits.terms`). No I/O.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

from jupyter_gpu.model.limits.account import Account
from jupyter_gpu.model.limits.calendar import LimitsInForce, day_of, in_force, runs_out
from jupyter_gpu.model.limits.effective import EffectiveLimits
from jupyter_gpu.model.limits.index import LimitIndex, OwnerKey, touches
from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.source import SourceKind

from .clocks import Clocks
from .rules.accounts.meter import GpuTimeMeter
from .rules.accounts.statement import account_of, days_until, is_stale, waits_for
from .rules.limits.amounts import lowered, owner_limits
from .rules.limits.claims import same_claims
from .rules.limits.grace import Grace
from .rules.limits.lendable import lendable
from .rules.limits.limit_status import Use
from .rules.limits.owner_limits import OwnerLimits
from .rules.limits.reclaim import reclaimed
from .rules.limits.terms import (
    PodTerms,
    ends_stay_until,
    is_within,
    permits_all,
    permitted_terms,
    terms,
    total_has,
    unserved_terms,
    with_moved_end,
)
from .rules.state.pod_state import PodState
from .rules.state.snapshot import ClusterSnapshot
from .settings import LimitSettings, PrioritySettings


@dataclass(slots=True)
class OwnerRecord:
    """The limits of one owner, and the state that must be kept between two updates."""

    meter: GpuTimeMeter
    effective: EffectiveLimits | None = None
    """``None``: to be computed."""
    in_force: LimitsInForce | None = None
    limits: OwnerLimits = field(default_factory=OwnerLimits)
    grace: Grace = field(default_factory=Grace)
    reclaims_at: float | None = None
    """Seconds since 1970 at which a pod must give back what is reclaimed from it; ``None``: nothing is."""
    due: float | None = None
    """Seconds since 1970 of the next change that time alone brings; ``None``: not foreseen."""
    is_within: bool = False
    """Whether the pods were within the limits, when their terms were computed last, see `is_within`."""
    held: int = 0
    """Milli that they held then."""
    ends_stay_until: float = 0
    """Milli that they may hold before the end of any slider shows it, see `ends_stay_until`."""
    settled: int | None = None
    """The inventories (`Owners.gpus_changed`) by which the pods in the snapshot have their terms; ``None``: some may
    need new ones, even if no pod changes."""


class ChangedOwners:
    """The owners that may have changed since one reader took them last."""

    def __init__(self) -> None:
        self._found: dict[Owner, None] = {}

    def add(self, owner: Owner) -> None:
        """Note an owner."""
        self._found[owner] = None

    def take(self) -> tuple[Owner, ...]:
        """Return the owners noted since the last call."""
        found = tuple(self._found)
        self._found.clear()
        return found


class Owners:
    """The owners of the pods of one snapshot."""

    def __init__(
        self, snapshot: ClusterSnapshot, limits: LimitSettings, priorities: PrioritySettings, clocks: Clocks
    ) -> None:
        self._snapshot = snapshot
        self._priority_cap = priorities.cap
        self._zone = limits.time_zone
        self._lends = snapshot.lends
        self._fair = limits.queue == "fair"
        self._reclaim = limits.reclaim
        self._elapsed = clocks.elapsed
        self._now = clocks.now
        self._limits = LimitIndex()
        self._owners: dict[Owner, OwnerRecord] = {}
        self._alarms: list[tuple[float, Owner]] = []  # a heap of the owners' `due`
        self._readers: list[ChangedOwners] = []
        self._reclaimed: dict[str, dict[str, int]] = {}  # by node: milli that pods give back for others, by uid
        self._inventories = 0

    @property
    def limits(self) -> LimitIndex:
        """All limits that are known."""
        return self._limits

    def known(self) -> tuple[Owner, ...]:
        """Return all owners that had a pod or an account."""
        return tuple(self._owners)

    def holding(self) -> tuple[Owner, ...]:
        """Return the owners that hold GPUs: their GPU time grows."""
        return tuple(owner for owner, found in self._owners.items() if found.meter.milli)

    def account(self, owner: Owner) -> Account:
        """Return the account of an owner as it is now."""
        found = self._record(owner)
        self._update(owner, found, self._snapshot.holds(owner))
        found.meter = found.meter.counted(self._elapsed(), self._now(), self._zone)
        assert found.effective is not None
        assert found.in_force is not None
        return account_of(
            owner,
            self._snapshot,
            limits=found.effective,
            in_force=found.in_force,
            grace=found.grace,
            meter=found.meter,
            now=self._now(),
        )

    def restore(self, account: Account) -> None:
        """Take over what the last leader wrote about an owner, in place of what this process counted meanwhile."""
        found, now = self._record(account.owner), self._now()
        found.meter = replace(
            found.meter.counted(self._elapsed(), now, self._zone), days=days_until(account, now, self._zone)
        )
        if account.over_since is not None and found.grace.since is not None:
            found.grace = replace(found.grace, since=min(found.grace.since, float(account.over_since)))
        found.in_force = None  # to be computed again: budgets count what was used

    def forget_stale(self) -> tuple[Owner, ...]:
        """Forget the owners without pods whose accounts are stale; return them."""
        today = day_of(self._now(), self._zone)
        found = tuple(
            owner
            for owner, record in self._owners.items()
            if not self._snapshot.owned(owner) and is_stale(record.meter.days, today)
        )
        for owner in found:
            del self._owners[owner]
        return found

    def knows(self, owner: Owner) -> bool:
        """Tell whether a pod of an owner was seen, or the account is known, and not forgotten since."""
        return owner in self._owners

    def use(self, owner: Owner) -> Use:
        """Return what the pods of an owner hold and wait for."""
        return Use(self._snapshot.holds(owner), waits_for(self._snapshot, owner))

    def over_since(self, owner: Owner) -> float | None:
        """Return since when an owner has had more than the maximum; ``None``: it has not."""
        return self._record(owner).grace.since

    def follow(self) -> ChangedOwners:
        """Return the owners that change from now on: their use, their limits, or what time makes of them."""
        reader = ChangedOwners()
        self._readers.append(reader)
        return reader

    # --- limits -------------------------------------------------------------------------------------------------------

    def may_leave(self, owner: Owner) -> bool:
        """Tell whether the limits of an owner permit GPUs of other nodes than the pod's own."""
        if not len(self._limits):
            return True
        found = self._owners.get(owner)
        return ((found and found.effective) or self._limits.effective(owner)).remote.value

    def put_limit(self, limit: Limit) -> tuple[Owner, ...]:
        """Add or replace a limit; return the owners whose pods need new terms."""
        before = len(self._limits)
        return self._touched(self._limits.put(limit), before)

    def remove_limit(self, name: str) -> tuple[Owner, ...]:
        """Forget a limit; return the owners whose pods need new terms."""
        before = len(self._limits)
        return self._touched(self._limits.remove(name), before)

    def _touched(self, keys: Collection[OwnerKey], before: int) -> tuple[Owner, ...]:
        """Return the owners that a change concerns: all where limits come into use, or there are none any more."""
        everyone = bool(before) != bool(len(self._limits))
        found = tuple(owner for owner in self._owners if everyone or touches(keys, owner))
        for owner in found:
            self._owners[owner].effective = None
        return found

    # --- terms of pods ------------------------------------------------------------------------------------------------

    def update_terms(self, owner: Owner, new: PodState | None = None) -> Iterator[PodState]:
        """Compute the terms of an owner's pods; yield the pods whose terms changed, with the new ones.

        ``new`` is always yielded, as the first; it replaces the pod of its uid in the snapshot, or comes in addition.
        """
        found, before = self._record(owner), None
        holds, claims = self._snapshot.holds(owner), self._snapshot.claims(owner)
        if new is not None:
            known = self._snapshot.pod(new.uid)
            before = known if known and known.owner == owner else None
            holds += new.holds - (before.holds if before else 0)
            claims += new.claimed - (before.claimed if before else 0)
        self._update(owner, found, holds)
        for reader in self._readers:
            reader.add(owner)
        if not len(self._limits):
            found.settled = None
            pods = self._snapshot.owned(owner) if new is None else (new,)
            yield from (self._free(pod) for pod in pods if pod is new or pod.pod_limit is not None)
            return
        new = self._capped(new, found) if new else None
        if new and before and found.settled == self._inventories and same_claims(before, new):
            yield PodTerms.of(before).applied(new)
        else:
            yield from self._under_terms(owner, found, new, holds, claims)

    def has_settled(self, owner: Owner) -> bool:
        """Tell whether an owner's pods in the snapshot have their terms as long as nothing changes."""
        return not len(self._limits) or self._record(owner).settled == self._inventories

    def gpus_changed(self) -> None:
        """Note that a node has other GPUs: the terms of any pod may follow from them."""
        self._inventories += 1

    def reclaim(self, node: str) -> tuple[Owner, ...]:
        """Find what pods of a node give back for others; return the owners whose pods need new terms."""
        found: dict[str, int] = {}
        if len(self._limits) and self._snapshot.gpus(node) is not None:
            found = reclaimed(self._snapshot, node, self._limits_of, guarantees=self._reclaim)
        before = self._reclaimed.pop(node, {})
        if found:
            self._reclaimed[node] = found
        changed = (uid for uid in {**before, **found} if found.get(uid) != before.get(uid))
        pods = (self._snapshot.pod(uid) for uid in changed)
        owners = tuple({pod.owner: None for pod in pods if pod})
        for owner in owners:
            self._record(owner).settled = None
        return owners

    def _limits_of(self, owner: Owner) -> OwnerLimits:
        return self._record(owner).limits

    def limited_by_kind(self) -> tuple[Owner, ...]:
        """Return the owners whose pods need new terms when a node gets other kinds of GPUs."""
        return tuple(owner for owner, found in self._owners.items() if found.limits.models or found.limits.memory)

    def limits_by_kind(self, owner: Owner) -> OwnerLimits | None:
        """Return the limits of an owner if they count kinds of GPUs, with what is reclaimed; ``None``: they do not."""
        found = self._owners.get(owner)
        if found is None or not (found.limits.models or found.limits.memory):
            return None
        return self._with_reclaimed(found.limits, self._snapshot.owned(owner))

    def _with_reclaimed(self, limits: OwnerLimits, pods: Iterable[PodState]) -> OwnerLimits:
        back = {pod.uid: milli for pod in pods if (milli := self._reclaimed.get(pod.node, {}).get(pod.uid))}
        return replace(limits, reclaimed=back) if back else limits

    def _under_terms(
        self, owner: Owner, found: OwnerRecord, new: PodState | None, holds: int, claims: int
    ) -> Iterator[PodState]:
        settled, found.settled = found.settled, None  # a caller may leave this generator
        has = claims if permits_all(claims, found.limits) else total_has(self._with_new(owner, new))
        if found.is_within and settled == self._inventories and is_within(has, found.limits):
            changed = self._within(owner, found, new, holds, claims, has)
        else:
            changed = self._divided(found, new, self._with_new(owner, new))
        self._set_alarm(owner, found)
        yield from changed
        found.held, found.settled = holds, self._inventories

    def _with_new(self, owner: Owner, new: PodState | None) -> list[PodState]:
        """Return the pods of an owner, the new one first."""
        pods = _others(self._snapshot.owned(owner), new)
        return pods if new is None else [new, *pods]

    def _within(
        self, owner: Owner, found: OwnerRecord, new: PodState | None, holds: int, claims: int, has: int
    ) -> list[PodState]:
        """Return the pods that have other terms, where they are within the limits, as before: see `is_within`.

        Those are the new one, those that lack GPUs, and those whose sliders end elsewhere.
        """
        snapshot, limits, fair = self._snapshot, found.limits, self._fair
        beside = _workers_hold(snapshot, new)
        pods, made = _others(snapshot.unserved(owner), new), dict[str, PodTerms]()
        if not permits_all(claims, limits):
            lacking = [new, *pods] if new is not None and new.lacks_gpus else pods
            made = unserved_terms(snapshot, lacking, limits, holds, has, beside, fair=fair)
        if new is not None:
            pods.insert(0, new)
        after = [
            (made.get(pod.uid) or permitted_terms(snapshot, pod, limits, holds, beside, fair=fair)).applied(pod)
            for pod in pods
        ]
        if holds != found.held and max(holds, found.held) > found.ends_stay_until:
            served = [pod for pod in _others(snapshot.owned(owner), new) if not pod.lacks_gpus]
            after += [with_moved_end(snapshot, pod, limits, holds, beside) for pod in served]
            pods += served
            found.ends_stay_until = ends_stay_until(snapshot, pods, limits)
        elif new is not None:
            found.ends_stay_until = min(found.ends_stay_until, ends_stay_until(snapshot, (new,), limits))
        return _changed(new, pods, after)

    def _divided(self, found: OwnerRecord, new: PodState | None, pods: list[PodState]) -> list[PodState]:
        """Compute all terms anew; return the pods that have other ones."""
        capped = [self._capped(pod, found) for pod in pods]
        known = self._all_terms(found, capped)
        after = [known[pod.uid].applied(pod) for pod in capped]
        found.ends_stay_until = ends_stay_until(self._snapshot, pods, found.limits)
        return _changed(new, pods, after)

    def _all_terms(self, found: OwnerRecord, pods: list[PodState]) -> Mapping[str, PodTerms]:
        limits = self._with_reclaimed(found.limits, pods)
        known = terms(self._snapshot, pods, limits, stored=found.grace.since, now=self._now(), fair=self._fair)
        found.grace, found.reclaims_at, found.is_within = known.grace, known.reclaims_at, known.is_within
        return known.pods

    def _capped(self, pod: PodState, found: OwnerRecord) -> PodState:
        """Return a pod with the highest priority that its namespace and its owner may use, and lendable or not."""
        assert found.effective is not None
        cap = min(self._priority_cap(pod.namespace), found.effective.priority_max.value)
        limit = found.effective.lendable
        pod = lendable(pod, self._lends, None if limit.source.kind is SourceKind.UNSET else limit.value)
        return pod if pod.cap == cap else replace(pod, cap=cap)

    def _free(self, pod: PodState) -> PodState:
        """Return a pod where no limits are in use."""
        cap, pod = self._priority_cap(pod.namespace), lendable(pod, self._lends, None)
        if pod.pod_limit is None and pod.cap == cap:
            return pod
        return replace(pod, allowance=None, model_allowances=(), pod_limit=None, standing=None, cap=cap)

    def _record(self, owner: Owner) -> OwnerRecord:
        found = self._owners.get(owner)
        if found is None:
            found = self._owners[owner] = OwnerRecord(GpuTimeMeter(self._elapsed()))
        return found

    def _update(self, owner: Owner, found: OwnerRecord, holds: int) -> None:
        """Bring the GPU time and the limits in force up to date."""
        now = self._now()
        known = found.effective is not None and found.in_force is not None and (found.due is None or now < found.due)
        if known and found.meter.milli == holds:
            return
        found.meter = found.meter.counted(self._elapsed(), now, self._zone).holding(holds)
        if known:
            return
        if found.effective is None:
            found.effective = self._limits.effective(owner)
        found.settled = None
        found.in_force = in_force(found.effective, now, self._zone, found.meter.used)
        after = owner_limits(found.effective, found.in_force)
        if found.grace.since is not None and lowered(found.limits, after):
            found.grace = Grace()  # a new one begins
        found.limits = after

    # --- changes that time brings -------------------------------------------------------------------------------------

    def _set_alarm(self, owner: Owner, found: OwnerRecord) -> None:
        assert found.effective is not None
        assert found.in_force is not None
        spent = None
        if found.effective.budget.alternatives or found.effective.budget.cap:
            now = self._now()
            found.meter = found.meter.counted(self._elapsed(), now, self._zone)
            spent = runs_out(found.effective, now, self._zone, found.meter.used, found.meter.milli)
        ends = found.grace.give_back_at if found.grace.tolerated else None
        times = (found.in_force.until, spent, ends, found.reclaims_at)
        due = min((when for when in times if when is not None), default=None)
        if due != found.due:
            found.due = due
            if due is not None:
                heapq.heappush(self._alarms, (due, owner))

    def seconds_until_due(self) -> float | None:
        """Return the seconds until the next change that time brings, for `due`; ``None``: there is none."""
        return max(0.0, self._alarms[0][0] - self._now()) if self._alarms else None

    def due(self) -> Iterable[Owner]:
        """Return the owners whose pods need new terms as time went by."""
        found: dict[Owner, None] = {}
        while self._alarms and self._alarms[0][0] <= self._now():
            when, owner = heapq.heappop(self._alarms)
            if owner in self._owners and self._owners[owner].due == when:
                found[owner] = None
        return tuple(found)


def _workers_hold(snapshot: ClusterSnapshot, new: PodState | None) -> Mapping[str, int]:
    """Return the milli that the workers of each notebook hold, by its uid, with the ``new`` pod as it is now."""
    known = snapshot.workers_hold
    if new is None or not new.notebook:
        return known
    before = snapshot.pod(new.uid)
    same = before.holds if before and before.notebook == new.notebook else 0
    return {**known, new.notebook: known.get(new.notebook, 0) + new.holds - same}


def _others(pods: Iterable[PodState], new: PodState | None) -> list[PodState]:
    return [pod for pod in pods if new is None or pod.uid != new.uid]


def _changed(new: PodState | None, pods: list[PodState], after: list[PodState]) -> list[PodState]:
    return [now for pod, now in zip(pods, after, strict=True) if pod is new or now is not pod]
