"""The status of a pod's GPUs, computed from the three states; never stored.

The rules, first that applies:

| phase       | when                                                                     |
|-------------|--------------------------------------------------------------------------|
| `Degraded`  | a GPU of the pod is not healthy                                          |
| `Refused`   | the scheduler answered LimitExceeded or Infeasible                       |
| `Pending`   | the scheduler has not seen the wish yet                                  |
| `Attaching` | allocated, but not yet attached                                          |
| `Waiting`   | less is allocated than wanted: Deferred (nothing) or Partial (something) |
| `Releasing` | revoked, but not yet closed                                              |
| `Ready`     | what is wanted is attached                                               |
| `Idle`      | nothing is wanted and nothing attached                                   |
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from .annotations import Allocated, Attached, Reason, Requested
from .gpu import total


class Phase(StrEnum):
    """One word for the state of a pod's GPUs."""

    IDLE = "Idle"
    PENDING = "Pending"
    WAITING = "Waiting"
    ATTACHING = "Attaching"
    RELEASING = "Releasing"
    READY = "Ready"
    DEGRADED = "Degraded"
    REFUSED = "Refused"


class Status(NamedTuple):
    """The phase, its reason, and the amounts in milli behind it."""

    phase: Phase
    reason: Reason | None
    requested: int
    allocated: int
    attached: int
    draining: int

    @property
    def settled(self) -> bool:
        """Whether nothing more happens by itself."""
        return self.phase in (Phase.IDLE, Phase.READY, Phase.DEGRADED, Phase.REFUSED)


def status(requested: Requested | None, allocated: Allocated | None, attached: Attached | None) -> Status:
    """Compute the status, here and nowhere else; pure."""
    wanted = requested.milli if requested else 0
    granted = total(allocated.shares) if allocated else 0
    usable = total(attached.shares) if attached else 0
    leaving = sum(item.milli for item in attached.draining) if attached else 0
    phase, reason = _phase(requested, allocated, attached)
    return Status(phase, reason, wanted, granted, usable, leaving)


def _phase(
    requested: Requested | None, allocated: Allocated | None, attached: Attached | None
) -> tuple[Phase, Reason | None]:
    wanted = requested.milli if requested else 0
    granted = {share.uuid: share.milli for share in allocated.shares} if allocated else {}
    usable = {share.uuid: share.milli for share in attached.shares} if attached else {}
    if attached and attached.reason is Reason.UNHEALTHY:
        return Phase.DEGRADED, Reason.UNHEALTHY
    # Another one, not only a later one: a wish that was written by hand has generation 0 whatever came before.
    if requested and (allocated is None or allocated.observed_generation != requested.generation):
        # A wish for nothing where nothing is held needs no answer.
        if wanted or granted or usable:
            return Phase.PENDING, None
    elif allocated and allocated.reason in (Reason.LIMIT_EXCEEDED, Reason.INFEASIBLE):
        return Phase.REFUSED, allocated.reason
    if any(usable.get(uuid, 0) < milli for uuid, milli in granted.items()):
        return Phase.ATTACHING, None
    if sum(granted.values()) < wanted:
        return Phase.WAITING, Reason.PARTIAL if granted else Reason.DEFERRED
    if (attached and attached.draining) or any(granted.get(uuid, 0) < milli for uuid, milli in usable.items()):
        return Phase.RELEASING, Reason.DRAINING
    return (Phase.READY, None) if usable else (Phase.IDLE, None)
