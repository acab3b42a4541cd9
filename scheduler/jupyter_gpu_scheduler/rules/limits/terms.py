"""The terms of an owner's pods: how much each may be allocated now, and which limit its panel shows."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from operator import attrgetter
from types import MappingProxyType
from typing import NamedTuple

from jupyter_gpu.model.limits.pod_limit import LimitWithWorkers, PodLimit, Reclaim
from jupyter_gpu.model.limits.source import Source
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.permitted import permitted
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding

from .allowances import held_by_workers, raised
from .claims import claims
from .division import Division, PodBound
from .feasibility import can_use_more
from .grace import Grace, grace
from .owner_limits import Maximum, OwnerLimits
from .reclaim_notices import due, joined, next_at, noticed

_NONE: Mapping[str, int] = MappingProxyType({})
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
    is_within: bool = False
    """Whether the pods have no more than the one maximum that there is, if any, see `is_within`."""


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
    if is_within(total_has(pods), limits):
        beside = held_by_workers(pods)
        made = {pod.uid: permitted_terms(snapshot, pod, limits, held, beside, fair=fair) for pod in pods}
        if not permits_all(sum(map(_claimed, pods)), limits):
            unserved = [pod for pod in pods if pod.lacks_gpus]
            made |= unserved_terms(snapshot, unserved, limits, held, total_has(pods), beside, fair=fair)
        return OwnerTerms(made, Grace(), is_within=True)
    standing = OwnerStanding(held, limits.guaranteed, limits.weight) if fair else None
    division = Division(snapshot, pods, limits)
    found = grace(stored, above=division.is_above(), seconds=limits.grace, now=now)
    notices = {pod.uid: _notices(snapshot, pod, limits, now) for pod in pods if pod.uid in limits.reclaimed}
    bounds = division.bounds(
        tolerated=found.tolerated, due={uid: due(reclaims, now) for uid, reclaims in notices.items()}
    )
    together = _with_workers(pods, notices)
    made = {
        pod.uid: _limited_terms(
            snapshot, pod, bounds[pod.uid], limits, found, standing, notices.get(pod.uid, ()), together.get(pod.uid, ())
        )
        for pod in pods
    }
    times = (next_at(reclaims, now) for reclaims in notices.values())
    return OwnerTerms(made, found, min((at for at in times if at is not None), default=None))


def total_has(pods: Iterable[PodState]) -> int:
    """Return the milli that pods have together; those that are being deleted are not counted."""
    return sum(pod.has for pod in pods if not pod.gone)


def is_within(has: int, limits: OwnerLimits) -> bool:
    """Tell whether pods that have ``has`` milli are within limits of the simplest form: one maximum, of GPUs, or none.

    So it is for most owners, most of the time. Then pods have something to do with each other only where they lack
    GPUs: `permitted_terms` and `unserved_terms` come to the same as `Division`.
    """
    if limits.models or limits.memory or limits.reclaimed:
        return False
    return limits.gpus is None or has <= limits.gpus.amount


def permits_all(claimed: int, limits: OwnerLimits) -> bool:
    """Tell whether the limits permit all that pods hold and wish, ``claimed`` milli together: true of most owners."""
    return is_within(claimed, limits)


def permitted_terms(
    snapshot: ClusterSnapshot,
    pod: PodState,
    limits: OwnerLimits,
    held: int,
    beside: Mapping[str, int] = _NONE,
    *,
    fair: bool = False,
) -> PodTerms:
    """Return the terms of a pod that may have all that it wishes.

    Nothing counts of the owner's other pods but ``held``: the milli that all of them hold together, and ``beside``:
    those that workers hold, by the uid of their notebook.
    """
    waits = OwnerStanding(held, limits.guaranteed, limits.weight) if fair and pod.lacks_gpus else None
    if limits.gpus is None:
        return PodTerms(None, (), _pod_limit(snapshot, pod, None, None, limits.source, None), waits)
    shown = _within_maximum(snapshot, pod, limits.gpus, held, beside)
    return PodTerms(max(pod.has, pod.wished), (), shown, waits)


def unserved_terms(
    snapshot: ClusterSnapshot,
    pods: Collection[PodState],
    limits: OwnerLimits,
    held: int,
    has: int,
    beside: Mapping[str, int] = _NONE,
    *,
    fair: bool = False,
) -> dict[str, PodTerms]:
    """Return the terms of all pods of an owner that lack GPUs, by uid; the owner must be within the limits.

    ``held`` and ``has`` are the milli that all pods of the owner hold and have (`total_has`); ``beside`` as in
    `permitted_terms`.
    """
    if limits.gpus is None:
        return {pod.uid: permitted_terms(snapshot, pod, limits, held, fair=fair) for pod in pods}
    most, lacking = limits.gpus.amount, {pod.uid: pod for pod in pods}

    def usable(uid: str, amount: int) -> int:
        wanted = lacking[uid].wanted
        return permitted(wanted, amount).milli if wanted else amount

    last = [pod.uid for pod in pods if not can_use_more(snapshot, pod)]
    parts = raised(claims(pods, last), most - has, max(0, most - held), usable)
    standing = OwnerStanding(held, limits.guaranteed, limits.weight) if fair else None
    found = {}
    for uid, pod in lacking.items():
        shown = _within_maximum(snapshot, pod, limits.gpus, held, beside)
        waits = standing if standing and _may_gain(pod, parts[uid]) else None
        found[uid] = PodTerms(parts[uid], (), shown, waits)
    return found


def with_moved_end(
    snapshot: ClusterSnapshot, pod: PodState, limits: OwnerLimits, held: int, beside: Mapping[str, int] = _NONE
) -> PodState:
    """Return a pod that lacks no GPUs under its `permitted_terms`, where nothing is new but ``held`` and ``beside``.

    Then only the end of its slider can be another; if it is not, the same object is returned.
    """
    shown = pod.pod_limit
    if limits.gpus is None or shown is None:
        return pod
    found = _within_maximum(snapshot, pod, limits.gpus, held, beside)
    return pod if found is shown else pod.showing(found, pod.allocated)


def ends_stay_until(snapshot: ClusterSnapshot, pods: Collection[PodState], limits: OwnerLimits) -> float:
    """Return the milli that an owner's pods may hold together before the end of any slider shows it."""
    if limits.gpus is None:
        return inf
    if not all(pod.node for pod in pods):
        return 0
    return limits.gpus.amount - max((_room(snapshot, pod.node) for pod in pods), default=0)


def _notices(snapshot: ClusterSnapshot, pod: PodState, limits: OwnerLimits, now: float) -> tuple[Reclaim, ...]:
    """Return the notices of a pod. They go on from those known here, else from the pod's record: of another leader."""
    amount, before = limits.reclaimed.get(pod.uid, 0), snapshot.pod(pod.uid)
    here = before.pod_limit.reclaimed if before and before.pod_limit else ()
    recorded = pod.allocated.limit.reclaimed if pod.allocated and pod.allocated.limit else ()
    return noticed(here or recorded, amount, seconds=limits.grace, now=now) if amount else ()


def _with_workers(
    pods: Iterable[PodState], notices: Mapping[str, tuple[Reclaim, ...]]
) -> Mapping[str, tuple[Reclaim, ...]]:
    """Return the notices of each notebook whose workers have some, with its own, by its uid."""
    found: dict[str, list[tuple[Reclaim, ...]]] = {}
    for pod in pods:
        if pod.notebook and (own := notices.get(pod.uid)):
            found.setdefault(pod.notebook, [notices.get(pod.notebook, ())]).append(own)
    return {uid: joined(some) for uid, some in found.items()}


def _limited_terms(
    snapshot: ClusterSnapshot,
    pod: PodState,
    bound: PodBound,
    limits: OwnerLimits,
    found: Grace,
    standing: OwnerStanding | None,
    reclaims: tuple[Reclaim, ...],
    of_workers: tuple[Reclaim, ...],
) -> PodTerms:
    """Return the terms of a pod; ``of_workers``: its notices with those of its workers, if these have some."""
    most, source = (bound.maximum.amount, bound.maximum.source) if bound.maximum else (None, limits.source)
    allowance = bound.allowance
    give_back_at = reclaims[0].at if reclaims and found.give_back_at is None else found.give_back_at
    return PodTerms(
        allowance=allowance,
        model_allowances=tuple(sorted(bound.models)),
        pod_limit=_pod_limit(
            snapshot,
            pod,
            bound.slider,
            most,
            source,
            give_back_at,
            reclaims,
            bound.memory,
            _together(bound, limits, of_workers),
        ),
        standing=standing if standing and _may_gain(pod, allowance) else None,
    )


def _may_gain(pod: PodState, allowance: int | None) -> bool:
    """Tell whether a pod may get more of its wish: only such pods change with every pod of their owner."""
    if allowance is None or not pod.wanted:
        return pod.wished > pod.has
    return min(pod.wished, permitted(pod.wanted, allowance).milli) > pod.has


def _within_maximum(
    snapshot: ClusterSnapshot, pod: PodState, maximum: Maximum, held: int, beside: Mapping[str, int]
) -> PodLimit:
    """Return the limit that a pod's panel shows, where there is one maximum, of GPUs, and no more is had."""
    most, left = maximum.amount, maximum.amount - (held - pod.holds)
    milli, together = max(0, left), None
    if workers := beside.get(pod.uid):
        together = LimitWithWorkers(max(0, left + workers), most, maximum.source)
    return _pod_limit(snapshot, pod, milli, most, maximum.source, None, together=together)


def _together(bound: PodBound, limits: OwnerLimits, reclaims: tuple[Reclaim, ...]) -> LimitWithWorkers | None:
    if bound.together is None:
        return None
    if (maximum := bound.together.maximum) is None:
        return LimitWithWorkers(None, None, limits.source, reclaims)
    return LimitWithWorkers(bound.together.slider, maximum.amount, maximum.source, reclaims)


def _pod_limit(
    snapshot: ClusterSnapshot,
    pod: PodState,
    milli: int | None,
    most: int | None,
    source: Source,
    give_back_at: float | None,
    reclaims: tuple[Reclaim, ...] = (),
    memory: int | None = None,
    together: LimitWithWorkers | None = None,
) -> PodLimit:
    """Return the limit that a pod's panel shows; the one that it has, where that is the same.

    ``milli``, ``memory``: what the owner's other pods leave; ``together``: what they leave to the pod and its workers.
    That is said only where it is something else, and not where other pods are not counted, if nothing is taken back.
    """
    if milli is not None:
        milli = _end_of_slider(snapshot, pod, milli, most)
    same = together is not None and milli == most and (most, source) == together[1:3] and not together.reclaimed
    if same and give_back_at is None:
        together = None
    found = PodLimit(milli, most, source, give_back_at, reclaims, memory, together)
    return pod.pod_limit if pod.pod_limit == found else found


def _end_of_slider(snapshot: ClusterSnapshot, pod: PodState, milli: int, most: int | None) -> int | None:
    """Return where a pod's slider ends: where that is more than its node has, the other pods are not counted.

    So a change of one pod is not written to all pods of a large owner.
    """
    return most if pod.node and milli >= _room(snapshot, pod.node) else milli


def _room(snapshot: ClusterSnapshot, node: str) -> int:
    return MILLI_PER_GPU * len(snapshot.gpus(node) or ())
