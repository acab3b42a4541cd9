"""How a pod uses its GPUs, as its node tells it: closed, resting or working; which of them are idle. Pure.

A GPU is *idle* while it is given to a pod and does nothing for it: no process has it open, or some process has, and it
*rests*: it has done nothing for a minute. A node that says nothing about rest, as an older one, or one that cannot find
it out, counts each open GPU as working. On one machine each server tells it for its own pod.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import IntEnum

from .annotations import Allocated, Attached
from .gpu import GpuShare


class UseClass(IntEnum):
    """The use of one GPU by one pod. In this order shares are given back, the newest of a class first."""

    CLOSED = 0
    RESTING = 1
    WORKING = 2


def use_class(uuid: str, opened: Collection[str], rests: Collection[str]) -> UseClass:
    """Return the class of one GPU, by the uuids that are open, and those of them that rest."""
    if uuid not in opened:
        return UseClass.CLOSED
    return UseClass.RESTING if uuid in rests else UseClass.WORKING


def resting(attached: Attached | None) -> frozenset[str]:
    """Return the uuids of the attached GPUs that are open and rest."""
    if attached is None or not attached.rests:
        return frozenset()
    return frozenset(
        share.uuid
        for share in attached.shares
        if use_class(share.uuid, attached.open, attached.rests) is UseClass.RESTING
    )


def resting_since(before: Mapping[str, int], attached: Attached | None, now: int) -> Mapping[str, int]:
    """Return since when each resting GPU rests, by uuid: as ``before``, or since ``now``."""
    return {uuid: before.get(uuid, now) for uuid in resting(attached)}


def idle_for(since: int, now: float) -> str:
    """Return ``idle for 12 min``. The first minute counts as one, as a GPU rests after a minute without use."""
    hours, minutes = divmod(max(1, int(now - since) // 60), 60)
    return f"idle for {hours} h {minutes} min" if hours else f"idle for {minutes} min"


def idle_shares(allocated: Allocated | None, attached: Attached | None) -> tuple[GpuShare, ...]:
    """Return the attached shares that the pod keeps and that do not work."""
    if allocated is None or attached is None:
        return ()
    kept = {share.uuid for share in allocated.shares}
    return tuple(
        share
        for share in attached.shares
        if share.uuid in kept and use_class(share.uuid, attached.open, attached.rests) is not UseClass.WORKING
    )
