"""Pure: the terms of a machine's pods under the limits of their owners, as the scheduler of a cluster computes them.

Each server decides about its own pod alone, so the terms follow from what all servers know. Which GPUs are in use
each knows of its own pod only: so idle GPUs go first within a pod, and not between the pods of an owner.

The grace of an owner begins with the first pod whose record says when it ends. GPU-hours are those of the account.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date, tzinfo
from types import MappingProxyType
from typing import NamedTuple

from jupyter_gpu.backends.local.records.other_pods import NODE
from jupyter_gpu.model.limits.calendar import LimitsInForce, in_force, runs_out
from jupyter_gpu.model.limits.effective import EffectiveLimits
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu_scheduler.rules.limits.amounts import owner_limits
from jupyter_gpu_scheduler.rules.limits.owner_limits import OwnerLimits
from jupyter_gpu_scheduler.rules.limits.reclaim import reclaimed
from jupyter_gpu_scheduler.rules.limits.terms import terms
from jupyter_gpu_scheduler.rules.state.pod_state import HIGHEST, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot


class UserLimits(NamedTuple):
    """The limits of a machine at one moment, and whose pods there are."""

    limits: LimitIndex
    owners: Mapping[str, Owner]
    """By uid of the pod: of each pod that is known."""
    started: Mapping[str, float]
    """The start of each pod's server, on any clock: the newest pod of an owner gives back first."""
    zone: tzinfo
    now: float
    """Seconds since 1970."""
    used: Mapping[Owner, Mapping[date, int]] = MappingProxyType({})
    """Milli-GPU-seconds of each day, by owner."""
    counted_until: float | None = None
    """Seconds since 1970 until which ``used`` may be relied on; ``None``: no budget needs it."""
    reclaims: bool = False
    """Whether guaranteed GPUs are reclaimed from others."""


class _Party(NamedTuple):
    """One owner, with the limits in force."""

    owner: Owner
    effective: EffectiveLimits
    now: LimitsInForce
    limits: OwnerLimits


def settle(snapshot: ClusterSnapshot, users: UserLimits) -> float | None:
    """Put all pods of the machine under the terms of their owners.

    Return when time alone changes them, in seconds since 1970; ``None``: that is not foreseen.
    """
    busy = {}
    for uid, owner in users.owners.items():
        pod = snapshot.pod(uid)
        assert pod is not None
        busy[uid] = pod.busy  # known of our own pod alone
        snapshot.put_pod(replace(pod, owner=owner, created=users.started[uid], busy=frozenset()))
    parties = {owner: _party(owner, users) for owner in sorted(set(users.owners.values()))}
    due = [] if users.counted_until is None else [users.counted_until]
    for party in parties.values():
        due += _settle_owner(snapshot, party, users)
    back = _reclaimed(snapshot, parties, users)
    for owner, amounts in back.items():
        party = parties[owner]
        due += _settle_owner(snapshot, party._replace(limits=replace(party.limits, reclaimed=amounts)), users)
    for uid in users.owners:
        if busy[uid] and (pod := snapshot.pod(uid)):
            snapshot.put_pod(replace(pod, busy=busy[uid]))
    return min(due, default=None)


def _party(owner: Owner, users: UserLimits) -> _Party:
    effective = users.limits.effective(owner)
    now = in_force(effective, users.now, users.zone, users.used.get(owner, {}))
    return _Party(owner, effective, now, owner_limits(effective, now))


def _reclaimed(
    snapshot: ClusterSnapshot, parties: Mapping[Owner, _Party], users: UserLimits
) -> dict[Owner, dict[str, int]]:
    """Return the milli that pods give back for guaranteed GPUs of others, by owner and uid."""

    def limits_of(owner: Owner) -> OwnerLimits:
        return parties[owner].limits if owner in parties else OwnerLimits()  # a stand-in for a damaged record

    found: dict[Owner, dict[str, int]] = {}
    for uid, milli in reclaimed(snapshot, NODE, limits_of, guarantees=users.reclaims).items():
        if uid in users.owners:
            found.setdefault(users.owners[uid], {})[uid] = milli
    return found


def _settle_owner(snapshot: ClusterSnapshot, party: _Party, users: UserLimits) -> list[float]:
    pods = snapshot.owned(party.owner)
    since = grace_since(pods, party.limits)
    known = terms(snapshot, pods, party.limits, stored=since, now=users.now, fair=True)
    cap = min(HIGHEST, party.effective.priority_max.value)
    for pod in pods:
        snapshot.put_pod(replace(known.pods[pod.uid].applied(pod), cap=cap))
    used = users.used.get(party.owner, {})
    spent = runs_out(party.effective, users.now, users.zone, used, sum(pod.holds for pod in pods))
    ends = known.grace.give_back_at if known.grace.tolerated else None
    moments = (party.now.until, ends, spent, known.reclaims_at)
    return [moment for moment in moments if moment is not None]


def grace_since(pods: Collection[PodState], limits: OwnerLimits) -> float | None:
    """Return when the grace of an owner began, according to the records of the pods; ``None``: none has begun.

    A grace under a higher maximum does not count: a new one begins when the maximum is lowered further.
    """
    most = limits.gpus.amount if limits.gpus else None
    told = [pod.allocated.limit for pod in pods if pod.allocated and pod.allocated.limit]
    begun = [
        limit.give_back_at - limits.grace
        for limit in told
        if limit.give_back_at is not None and not _is_of_another(limit, most)
    ]
    return min(begun, default=None)


def _is_of_another(told: PodLimit, most: int | None) -> bool:
    """Tell whether the time that a pod was told is no end of a grace under ``most``."""
    higher = most is not None and told.max is not None and told.max > most
    return higher or any(item.at == told.give_back_at for item in told.reclaimed)
