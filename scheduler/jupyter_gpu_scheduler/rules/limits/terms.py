"""The terms of an owner's pods: how much each may be allocated now, and which limit its panel shows."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace

from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, PodState
from jupyter_gpu_scheduler.rules.state.standing import Standing

from .division import Bound, Division
from .grace import Grace, grace
from .owner_limits import OwnerLimits


@dataclass(frozen=True, slots=True)
class PodTerms:
    """The terms of one pod; each field is the field of `PodState` with that name."""

    allowance: int | None
    model_allowances: tuple[tuple[str, int], ...]
    pod_limit: PodLimit
    standing: Standing | None = None

    def applied(self, pod: PodState) -> PodState:
        """Return the pod under these terms."""
        return replace(
            pod,
            allowance=self.allowance,
            model_allowances=self.model_allowances,
            pod_limit=self.pod_limit,
            standing=self.standing,
        )


@dataclass(frozen=True, slots=True)
class OwnerTerms:
    """The terms of all pods of one owner."""

    pods: Mapping[str, PodTerms]
    """By uid."""
    grace: Grace


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
    asked for GPUs only. To be asked again when a pod of the owner, a limit or a node's GPUs change, and when the grace
    ends.
    """
    division = Division(snapshot, pods, limits)
    found = grace(stored, above=division.above(), seconds=limits.grace, now=now)
    bounds = division.bounds(tolerated=found.tolerated)
    standing = Standing(sum(sum(pod.held.values()) for pod in pods), limits.guaranteed, limits.weight)
    made = {}
    for pod in pods:
        without = _terms(bounds[pod.uid], limits, found)
        made[pod.uid] = replace(without, standing=standing) if fair and _waits(without.applied(pod)) else without
    return OwnerTerms(made, found)


def _waits(pod: PodState) -> bool:
    """Tell whether a pod lacks GPUs that its terms permit: the others need no standing, so nothing changes for them."""
    return pod.wish is not None and not pod.gone and pod.wish.milli > pod.has


def _terms(bound: Bound, limits: OwnerLimits, found: Grace) -> PodTerms:
    most, source = (bound.maximum.amount, bound.maximum.source) if bound.maximum else (None, limits.source)
    return PodTerms(
        allowance=bound.allowance,
        model_allowances=tuple(sorted(bound.models)),
        pod_limit=PodLimit(bound.slider, most, source, found.give_back_at),
    )
