"""Pure: the terms of a machine's pods under the limits of their owners, as the scheduler of a cluster computes them.

Each server decides about its own pod alone, so the terms follow from what all servers know. Which GPUs are in use each
knows of its own pod only: so idle GPUs go first within a pod, and not between the pods of an owner.

The grace of an owner begins with the first pod whose record says when it ends. GPU-hours are those of the account.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from datetime import date, tzinfo
from types import MappingProxyType
from typing import NamedTuple

from jupyter_gpu.model.limits.calendar import LimitsInForce, in_force, runs_out
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu_scheduler.rules.limits.amounts import owner_limits
from jupyter_gpu_scheduler.rules.limits.owner_limits import OwnerLimits
from jupyter_gpu_scheduler.rules.limits.terms import OwnerTerms, terms
from jupyter_gpu_scheduler.rules.state.snapshot import HIGHEST, ClusterSnapshot, PodState


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


def settle(snapshot: ClusterSnapshot, users: UserLimits) -> float | None:
    """Put all pods of the machine under the terms of their owners.

    Return when time alone changes them, in seconds since 1970; ``None``: that is not foreseen.
    """
    for uid, owner in users.owners.items():
        pod = snapshot.pod(uid)
        assert pod is not None
        snapshot.put_pod(replace(pod, owner=owner, created=users.started[uid]))
    due = [] if users.counted_until is None else [users.counted_until]
    for owner in sorted(set(users.owners.values())):
        due += _settle_owner(snapshot, owner, users)
    return min(due, default=None)


def _settle_owner(snapshot: ClusterSnapshot, owner: Owner, users: UserLimits) -> list[float]:
    pods = snapshot.owned(owner)
    effective = users.limits.effective(owner)
    used = users.used.get(owner, {})
    now = in_force(effective, users.now, users.zone, used)
    limits = owner_limits(effective, now)
    since = grace_since(pods, limits)
    blind = [replace(pod, busy=frozenset()) for pod in pods]
    known = terms(snapshot, blind, limits, stored=since, now=users.now, fair=True)
    for pod in pods:
        snapshot.put_pod(replace(known.pods[pod.uid].applied(pod), cap=min(HIGHEST, effective.priority_max.value)))
    spent = runs_out(effective, users.now, users.zone, used, sum(pod.holds for pod in pods))
    return _moments(now, known, spent)


def grace_since(pods: Collection[PodState], limits: OwnerLimits) -> float | None:
    """Return when the grace of an owner began, according to the records of the pods; ``None``: none has begun.

    A grace under a higher maximum does not count: a new one begins when the maximum is lowered further.
    """
    most = limits.gpus.amount if limits.gpus else None
    told = [pod.allocated.limit for pod in pods if pod.allocated and pod.allocated.limit]
    begun = [
        limit.give_back_at - limits.grace
        for limit in told
        if limit.give_back_at is not None and not (most is not None and limit.max is not None and limit.max > most)
    ]
    return min(begun, default=None)


def _moments(now: LimitsInForce, known: OwnerTerms, spent: float | None) -> list[float]:
    ends = known.grace.give_back_at if known.grace.tolerated else None
    return [moment for moment in (now.until, ends, spent) if moment is not None]
