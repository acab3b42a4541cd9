"""Pure: the bundles of a pod that may be parked for others, and when there are others; the time is an argument.

A bundle may be parked once all its GPUs have rested for some time, and have been attached for some time, so that two
users do not take one GPU from each other all the time; and not while its user keeps it. What could not be parked is
tried again later, but never if the driver failed at it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import NamedTuple

from jupyter_gpu.model.parking import Obstacle, RestingShare
from jupyter_gpu_scheduler.rules.state.parked import Parkable
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

_NONE: Mapping[str, float] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ParkTimes:
    """Seconds that decide when something may be parked for others."""

    rest: float = 120.0
    """Rest of all GPUs of a bundle."""
    hold: float = 120.0
    """Time since they were attached."""
    retry: float = 600.0
    """Time after which something is tried again that could not be parked."""


class Candidates(NamedTuple):
    """The bundles of a pod that may be parked now."""

    parkable: tuple[Parkable, ...] = ()
    """For `PodState.parkable`."""
    next_at: float | None = None
    """The time at which there are others, if nothing else changes before; ``None``: that is not foreseen."""


def candidates(
    pod: PodState,
    times: ParkTimes,
    now: float,
    *,
    attached_since: Mapping[str, float] = _NONE,
    guaranteed: int = 0,
    longest_keep: float = inf,
) -> Candidates:
    """Return what of a pod may be parked at ``now``, on the clock of its records.

    ``attached_since``: by uuid, where it is known; what is not known was attached when its rest began.
    ``guaranteed``: milli that are guaranteed to the pod's owner; ``longest_keep``: the time until which its user may
    keep it at most.
    """
    if pod.attached is None or not pod.attached.resting or pod.gone:
        return Candidates()
    kept = pod.requested.keep if pod.requested else None
    first = min(kept, longest_keep) if kept is not None else -inf
    found, later = [], [inf]
    for bundle in _bundles(pod):
        at = max(first, *(_ripe_at(pod, share, times, attached_since) for share in bundle))
        if at <= now:
            since, size = max(share.since for share in bundle), sum(share.bytes for share in bundle)
            uuids = frozenset(share.uuid for share in bundle)
            found.append(Parkable(bundle[0].bundle, uuids, since, size, guaranteed))
        else:
            later.append(at)
    return Candidates(tuple(found), None if min(later) == inf else min(later))


def _bundles(pod: PodState) -> Iterator[list[RestingShare]]:
    """Yield the bundles that rest as a whole, by name; whatever is written, a GPU counts once, in one bundle."""
    assert pod.attached is not None
    has = {share.uuid for share in pod.attached.shares}
    found: dict[str, dict[str, RestingShare]] = {}
    for share in pod.attached.resting:
        found.setdefault(share.bundle, {})[share.uuid] = share
    for name in sorted(found):
        if found[name].keys() <= has:
            has -= found[name].keys()
            yield list(found[name].values())


def _ripe_at(pod: PodState, share: RestingShare, times: ParkTimes, attached_since: Mapping[str, float]) -> float:
    """Return the time from which one GPU may be parked; endless where it never may."""
    assert pod.attached is not None
    held = min(attached_since.get(share.uuid, share.since), share.since)
    at = max(share.since + times.rest, held + times.hold)
    for obstacle in pod.attached.unparkable:
        if obstacle.uuid == share.uuid:
            at = max(at, inf if obstacle.why == Obstacle.BROKEN else obstacle.since + times.retry)
    return at
