"""The terms of an owner's pods: how much each may be allocated now, and which limit its panel shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from typing import NamedTuple

from jupyter_gpu.model.limits.pod_limit import PodLimit, Reclaim
from jupyter_gpu.model.limits.source import Source
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.permitted import permitted
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, PodState
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding

from .division import Division, PodBound
from .grace import Grace, grace
from .owner_limits import OwnerLimits
from .reclaim_notices import due, next_at, noticed

_claimed, _holds = attrgetter("claimed"), attrgetter("holds")


class PodTerms(NamedTuple):
    """The terms of one pod; each field is the field of `PodState` with that name."""

    allowance: int | None
    model_allowances: tuple[tuple[str, int], ...]
    pod_limit: PodLimit
    standing: OwnerStanding | None = None

    @classmethod
    def of(cls, pod: PodState) -> PodTerms:
        """Return the terms that a pod is under; it must be under some."""
        assert pod.pod_limit is not None
        return cls(pod.allowance, pod.model_allowances, pod.pod_limit, pod.standing)

    def applied(self, pod: PodState) -> PodState:
        """Return the pod under these terms; the same object where it is under them already."""
        if (self.allowance, self.model_allowances, self.standing) == (
            pod.allowance,
            pod.model_allowances,
            pod.standing,
        ):
            return pod if self.pod_limit == pod.pod_limit else pod.showing(self.pod_limit, pod.allocated)
        return pod.under(self.allowance, self.model_allowances, self.pod_limit, self.standing)


@dataclass(frozen=True, slots=True)
class OwnerTerms:
    """The terms of all pods of one owner."""

    pods: Mapping[str, PodTerms]
    """By uid."""
    grace: Grace
    reclaims_at: float | None = None
    """Seconds since 1970 at which a pod must give back the next amount that is reclaimed; ``None``: none must."""
    permits_all: bool = False
    """Whether the limits permit all that the pods hold and wish."""


def terms(
    snapshot: ClusterSnapshot,
    pods: Collection[PodState],
    limits: OwnerLimits,
    *,
    stored: float | None,
    now: float,
    fair: bool = False,
) -> OwnerTerms:
    """Return the terms of all ``pods`` of one owner at ``now``, in seconds since 1970.

    ``stored`` is the beginning of the owner's grace that is stored; ``fair``: whether the line is fair. The snapshot is
    asked for GPUs only. Call this again when a pod of the owner, a limit or a node's GPUs change, and when the grace
    ends.
    """
    held = sum(map(_holds, pods))
    if permits_all(sum(map(_claimed, pods)), limits):
        found = grace(stored, above=False, seconds=limits.grace, now=now)
        made = {pod.uid: permitted_terms(snapshot, pod, limits, held, fair=fair) for pod in pods}
        return OwnerTerms(made, found, permits_all=True)
    standing = OwnerStanding(held, limits.guaranteed, limits.weight) if fair else None
    division = Division(snapshot, pods, limits)
    found = grace(stored, above=division.is_above(), seconds=limits.grace, now=now)
    notices = {pod.uid: _notices(snapshot, pod, limits, now) for pod in pods if pod.uid in limits.reclaimed}
    bounds = division.bounds(
        tolerated=found.tolerated, due={uid: due(reclaims, now) for uid, reclaims in notices.items()}
    )
    made = {
        pod.uid: _limited_terms(snapshot, pod, bounds[pod.uid], limits, found, standing, notices.get(pod.uid, ()))
        for pod in pods
    }
    times = (next_at(reclaims, now) for reclaims in notices.values())
    return OwnerTerms(made, found, min((at for at in times if at is not None), default=None))


def permits_all(claims: int, limits: OwnerLimits) -> bool:
    """Tell whether the limits permit all that pods hold and wish, together ``claims`` milli: true of most owners."""
    if limits.models or limits.memory or limits.reclaimed:
        return False
    return limits.gpus is None or claims <= limits.gpus.amount


def permitted_terms(
    snapshot: ClusterSnapshot, pod: PodState, limits: OwnerLimits, held: int, *, fair: bool = False
) -> PodTerms:
    """Return the terms of a pod that may have all that it wishes; `Division` would come to the same.

    Nothing counts of the owner's other pods but ``held``: the milli that all of them hold together.
    """
    waits = OwnerStanding(held, limits.guaranteed, limits.weight) if fair and pod.wished > pod.has else None
    if limits.gpus is None:
        return PodTerms(None, (), _pod_limit(snapshot, pod, None, None, limits.source, None), waits)
    most, source = limits.gpus.amount, limits.gpus.source
    shown = _pod_limit(snapshot, pod, most - (held - pod.holds), most, source, None)
    return PodTerms(max(pod.has, pod.wished), (), shown, waits)


def unconcerned_until(snapshot: ClusterSnapshot, pod: PodState, limits: OwnerLimits) -> float:
    """Return the milli that the owner's pods may hold without any effect on the `permitted_terms` that a pod is under."""
    if pod.standing is not None or (limits.gpus and not pod.node):
        return 0
    return limits.gpus.amount - MILLI_PER_GPU * len(snapshot.gpus(pod.node) or ()) if limits.gpus else inf


def _notices(snapshot: ClusterSnapshot, pod: PodState, limits: OwnerLimits, now: float) -> tuple[Reclaim, ...]:
    """Return the notices of a pod. They go on from those known here, else from the pod's record: of another leader."""
    amount, before = limits.reclaimed.get(pod.uid, 0), snapshot.pod(pod.uid)
    here = before.pod_limit.reclaimed if before and before.pod_limit else ()
    recorded = pod.allocated.limit.reclaimed if pod.allocated and pod.allocated.limit else ()
    return noticed(here or recorded, amount, seconds=limits.grace, now=now) if amount else ()


def _limited_terms(
    snapshot: ClusterSnapshot,
    pod: PodState,
    bound: PodBound,
    limits: OwnerLimits,
    found: Grace,
    standing: OwnerStanding | None,
    reclaims: tuple[Reclaim, ...],
) -> PodTerms:
    most, source = (bound.maximum.amount, bound.maximum.source) if bound.maximum else (None, limits.source)
    allowance = bound.allowance
    give_back_at = reclaims[0].at if reclaims and found.give_back_at is None else found.give_back_at
    return PodTerms(
        allowance=allowance,
        model_allowances=tuple(sorted(bound.models)),
        pod_limit=_pod_limit(snapshot, pod, bound.slider, most, source, give_back_at, reclaims),
        standing=standing if standing and _may_gain(pod, allowance) else None,
    )


def _may_gain(pod: PodState, allowance: int | None) -> bool:
    """Tell whether a pod may get more of its wish: only such pods change with every pod of their owner."""
    if allowance is None or not pod.requested:
        return pod.wished > pod.has
    return min(pod.wished, permitted(pod.requested.wish, allowance).milli) > pod.has


def _pod_limit(
    snapshot: ClusterSnapshot,
    pod: PodState,
    milli: int | None,
    most: int | None,
    source: Source,
    give_back_at: float | None,
    reclaims: tuple[Reclaim, ...] = (),
) -> PodLimit:
    """Return the limit that a pod's panel shows; the one that it has, where that is the same.

    Where the owner's other pods leave more than its node has, they are not counted: so a change of one pod is not
    written to all pods of a large owner.
    """
    if milli is not None and pod.node and milli >= MILLI_PER_GPU * len(snapshot.gpus(pod.node) or ()):
        milli = most
    found = PodLimit(milli, most, source, give_back_at, reclaims)
    return pod.pod_limit if pod.pod_limit == found else found
