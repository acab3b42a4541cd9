"""Plan of the next device rules and the next ``attached``, from what was decided and what is open. Pure.

The rules that keep a GPU from being in two hands, or in none:

- What is allocated may be opened, and is attached as soon as the rules that say so are in force.
- What was taken away is *draining* until a scan of ``/proc`` that began with the GPU already denied found no holder.
  Only then does it disappear from ``attached`` and is free.
- A GPU that comes back while it drains is simply attached again.

Any step can be repeated: with the same observation the plan of a plan is the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from jupyter_gpu.model.annotations import Allocated, Attached, Reason
from jupyter_gpu.model.gpu import DrainingShare, GpuShare, Holder
from jupyter_gpu.model.quantity import MILLI_PER_GPU

MAX_HOLDERS = 64
"""Largest number of holders named for one draining GPU; the proof never depends on the names."""


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed state of one pod's GPUs."""

    not_provable: frozenset[str] = frozenset()
    """Uuids of which the scan of ``/proc`` proves nothing: the rules in force still allowed them when it began, or it
    did not scan for them."""
    holders: Mapping[str, tuple[Holder, ...]] = field(default_factory=dict)
    """Holders of each GPU, by uuid, seen after that. A process that could not be inspected counts as a holder."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The next device rules and record of one pod."""

    allowed: frozenset[str]
    """Uuids that the device rules shall allow."""
    attached: Attached
    """True as soon as those rules are in force."""


def plan(
    allocated: Allocated | None, attached: Attached | None, seen: Observation, unhealthy: frozenset[str] = frozenset()
) -> Plan:
    """Plan the next step of one pod.

    ``unhealthy`` GPUs stay attached, so that what runs on them can end in its own way; the reason says it.
    """
    shares = allocated.shares if allocated else ()
    allowed = frozenset(share.uuid for share in shares)
    draining = tuple(
        DrainingShare(share.uuid, share.milli, tuple(seen.holders.get(share.uuid, ()))[:MAX_HOLDERS], share.memory)
        for share in _leaving(attached, seen)
        if share.uuid not in allowed and not _proven_closed(share.uuid, seen)
    )
    return Plan(
        allowed,
        Attached(
            observed_generation=_generation(allocated, attached),
            shares=shares,
            draining=draining,
            reason=_reason(allowed, draining, unhealthy),
            revision=allocated.revision if allocated else attached.revision if attached else 0,
            extra=attached.extra if attached else {},
        ),
    )


def _leaving(attached: Attached | None, seen: Observation) -> tuple[GpuShare, ...]:
    """Return all that the pod may have held, each GPU once: draining first, then attached, then unrecorded.

    A GPU that was allowed but never recorded comes from a step that was cut off between its rules and its record. How
    much of it was meant is not known: the whole GPU is the safe answer.
    """
    known = [item.share for item in attached.draining] + list(attached.shares) if attached else []
    unrecorded = seen.not_provable - {share.uuid for share in known}
    merged: dict[str, GpuShare] = {}
    for share in [*known, *(GpuShare(uuid, MILLI_PER_GPU) for uuid in sorted(unrecorded))]:
        merged[share.uuid] = share.joined(merged.get(share.uuid, share))
    return tuple(merged.values())


def _proven_closed(uuid: str, seen: Observation) -> bool:
    return uuid not in seen.not_provable and not seen.holders.get(uuid)


def _generation(allocated: Allocated | None, attached: Attached | None) -> int:
    if allocated:
        return allocated.observed_generation
    return attached.observed_generation if attached else 0


def _reason(allowed: frozenset[str], draining: tuple[DrainingShare, ...], unhealthy: frozenset[str]) -> Reason | None:
    if allowed & unhealthy:
        return Reason.UNHEALTHY
    return Reason.DRAINING if draining else None
