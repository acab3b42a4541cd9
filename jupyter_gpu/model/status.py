"""The status of a pod's GPUs, computed from the three states; never stored.

The rules, first that applies:

| phase       | when                                                                     |
|-------------|--------------------------------------------------------------------------|
| `Degraded`  | a GPU of the pod, or of a worker of it, is not healthy                   |
| `Refused`   | the scheduler answered Infeasible, or LimitExceeded without a user limit |
| `Pending`   | the scheduler has not seen the wish yet                                  |
| `Attaching` | allocated, but not yet attached; `Draining`: other pods use its memory   |
| `Waiting`   | less is allocated than wanted: Deferred (nothing), Partial (something,   |
|             | or all but memory), or LimitExceeded (all that the user's limit allows); |
|             | or a worker on another node cannot run now                               |
|             | or a program needs what is parked                                        |
| `Releasing` | revoked, but not yet closed                                              |
| `Parked`    | what is wanted is attached or parked, and nothing needs what is parked   |
| `Ready`     | what is wanted is attached                                               |
| `Idle`      | nothing is wanted and nothing attached                                   |

A wish above the limit of its user stands: it gets what the limit allows now, and the rest when the limit is raised. So
it is not refused but waits, for a person and not for room: the status is settled, and there is no position in line.

What is parked is not attached, and lacks nothing until a program needs it. A GPU on its way back is `Attaching`.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from .annotations import Allocated, Attached, Reason, Requested
from .gpu import total

if TYPE_CHECKING:  # loaded with the first worker or park, not when a kernel starts
    from .parking import ParkedShare
    from .pod_worker import PodWorker


class Phase(StrEnum):
    """One word for the state of a pod's GPUs."""

    IDLE = "Idle"
    PENDING = "Pending"
    WAITING = "Waiting"
    ATTACHING = "Attaching"
    RELEASING = "Releasing"
    PARKED = "Parked"
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
    parked: int = 0

    @property
    def settled(self) -> bool:
        """Whether nothing more happens by itself."""
        if self.limited:
            return not self.draining and self.attached == self.allocated
        return self.phase in (Phase.IDLE, Phase.READY, Phase.PARKED, Phase.DEGRADED, Phase.REFUSED)

    @property
    def limited(self) -> bool:
        """Whether all that the user's limit allows is there, and the rest waits until the limit is raised."""
        return self.phase is Phase.WAITING and self.reason is Reason.LIMIT_EXCEEDED


def status(
    requested: Requested | None,
    allocated: Allocated | None,
    attached: Attached | None,
    workers: Sequence[PodWorker] = (),
) -> Status:
    """Compute the status, here and nowhere else; pure. Amounts include what the ``workers`` have on other nodes."""
    wanted = requested.milli if requested else 0
    granted = (total(allocated.shares) if allocated else 0) + sum(worker.milli for worker in workers)
    usable = (total(attached.shares) if attached else 0) + sum(worker.usable for worker in workers)
    leaving = sum(item.milli for item in attached.draining) if attached else 0
    phase, reason = _phase(requested, allocated, attached, workers)
    return Status(phase, reason, wanted, granted, usable, leaving, sum(share.milli for share in _parked(attached)))


def _parked(attached: Attached | None) -> list[ParkedShare]:
    """Return what is parked and not among the pod's shares."""
    return [share for share in attached.parked if not share.kept] if attached else []


def _phase(
    requested: Requested | None, allocated: Allocated | None, attached: Attached | None, workers: Sequence[PodWorker]
) -> tuple[Phase, Reason | None]:
    wanted = requested.milli if requested else 0
    granted = {share.uuid: share.milli for share in allocated.shares} if allocated else {}
    usable = {share.uuid: share.milli for share in attached.shares} if attached else {}
    if (attached and attached.reason is Reason.UNHEALTHY) or any(worker.unhealthy for worker in workers):
        return Phase.DEGRADED, Reason.UNHEALTHY
    # Any other generation, not only a later one: a wish written by hand has generation 0, whatever came before.
    if requested and (allocated is None or allocated.observed_generation != requested.generation):
        # A wish for nothing where nothing is held needs no answer.
        if wanted or granted or usable or any(worker.milli or worker.held for worker in workers):
            return Phase.PENDING, None
    elif allocated and _is_refused(allocated):
        return Phase.REFUSED, allocated.reason
    # Nothing drains, and yet it says so: a share waits for the memory that other pods use.
    waits = bool(granted and attached and attached.reason is Reason.DRAINING and not attached.draining)
    parked = _parked(attached)
    needed = {share.uuid for share in parked if share.needed}
    resting = [share for share in parked if not share.needed]
    missing = {uuid for uuid, milli in granted.items() if usable.get(uuid, 0) < milli}
    # What was just parked is granted until the scheduler has seen it.
    if waits or missing.difference(share.uuid for share in resting) or needed & (granted.keys() | usable.keys()):
        return Phase.ATTACHING, Reason.DRAINING if waits else None
    owed = [worker for worker in workers if worker.missing]
    if any(not worker.hindered for worker in owed):
        return Phase.ATTACHING, None
    promised = sum(granted.values()) + sum(worker.milli for worker in workers)
    back = sum(share.milli for share in resting if share.uuid not in granted)
    if promised + back < wanted or needed:
        return Phase.WAITING, _lack(allocated, promised, back)
    there = bool(usable) or any(worker.usable for worker in workers)
    if owed:
        return Phase.WAITING, Reason.PARTIAL if there else Reason.DEFERRED
    if wanted and allocated and allocated.reason is Reason.PARTIAL:  # its shares lack memory alone
        return Phase.WAITING, Reason.PARTIAL
    closing = any(granted.get(uuid, 0) < milli for uuid, milli in usable.items())
    if closing or (attached and attached.draining) or any(worker.leaving for worker in workers):
        return Phase.RELEASING, Reason.DRAINING
    if resting:
        return Phase.PARKED, None
    return (Phase.READY, None) if there else (Phase.IDLE, None)


def _is_refused(allocated: Allocated) -> bool:
    """Tell whether the wish can never be served; above the limit of its user it can, as soon as that is raised."""
    if allocated.reason is Reason.LIMIT_EXCEEDED:
        return allocated.limit is None
    return allocated.reason is Reason.INFEASIBLE


def _lack(allocated: Allocated | None, granted: int, parked: int) -> Reason:
    """Return the reason that less is ``granted`` and ``parked`` than wanted."""
    if allocated and (limit := allocated.limit):
        full = limit.milli is not None and granted + parked >= limit.milli
        # A limit on a model or on memory ends below the amount; what has a ticket waits for room.
        if full or (allocated.reason is Reason.LIMIT_EXCEEDED and allocated.ticket is None):
            return Reason.LIMIT_EXCEEDED
    return Reason.PARTIAL if granted else Reason.DEFERRED
