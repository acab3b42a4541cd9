"""Which workers of a notebook are created and removed, and what is told about them. Pure.

Bounds hold whatever ``service`` says: so many workers for a pod and for an owner, and a pace of creations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_gpu.model.service import WorkerPart, WorkerState, WorkerStatus

from .records import Notebook, WorkerPod
from .status import failed, placed_until, retry_at, told, unplaced

ENDS_FIRST = "An earlier pod of this worker ends first."


@dataclass(frozen=True, slots=True)
class Plan:
    """The next steps for one notebook: statuses are written first, then pods are removed, then created."""

    statuses: Mapping[str, WorkerStatus] | None = field(default_factory=dict)
    """The new ``worker-status``; ``None``: it stays as it is."""
    remove: tuple[WorkerPod, ...] = ()
    create: tuple[WorkerPart, ...] = ()
    look_at: float = math.inf
    """Time at which to look again though nothing changed."""


def plan(notebook: Notebook | None, workers: Sequence[WorkerPod], now: float, most: int) -> Plan:
    """Plan for a notebook with these worker pods; ``None``: it is gone. ``most``: workers that it may have."""
    there = [worker for worker in workers if not worker.removing]
    if notebook is None or notebook.ended:
        return Plan(None, tuple(there))
    if notebook.parts is None:
        return Plan(None)
    by_id = {worker.identity.id: worker for worker in workers}
    named = {part.id for part in notebook.parts}
    statuses: dict[str, WorkerStatus] = {}
    remove = [worker for worker in there if worker.identity.id not in named]
    create: list[WorkerPart] = []
    look_at = math.inf
    for part in notebook.parts:
        before, pod = notebook.statuses.get(part.id), by_id.get(part.id)
        if pod is not None:
            statuses[part.id] = _status(before, part, pod, now)
            if not pod.removing and (pod.node != part.node or pod.condition.ended):
                remove.append(pod)
            elif pod.condition.unplaced:
                look_at = min(look_at, placed_until(statuses[part.id]))
        elif (due := retry_at(before)) > now:
            statuses[part.id] = before or told(None, WorkerState.CREATING, "", now)
            look_at = min(look_at, due)
        elif len(by_id) + len(create) >= most:
            message = f"A notebook may have {most} workers, and it has as many without this one."
            statuses[part.id] = failed(before, WorkerState.REFUSED, message, now)
            look_at = min(look_at, retry_at(statuses[part.id]))
        else:
            statuses[part.id] = told(_anew(before), WorkerState.CREATING, "", now)
            create.append(part)
    return Plan(statuses, tuple(remove), tuple(create), look_at)


def _status(before: WorkerStatus | None, part: WorkerPart, pod: WorkerPod, now: float) -> WorkerStatus:
    """Return what is told about a worker that has a pod."""
    condition = pod.condition
    if condition.ended:  # noted before the pod is removed, and so counted once
        counted = failed(before, WorkerState.FAILED, condition.message, now)
        known = before and before.tries and (before.state, before.message) == (counted.state, counted.message)
        return before if before and known else counted
    if pod.removing or pod.node != part.node:
        return told(before, WorkerState.CREATING, ENDS_FIRST, now)
    if condition.unplaced:
        return unplaced(before, part.node, condition.message, now)
    return told(before, condition.state, condition.message, now)


def _anew(before: WorkerStatus | None) -> WorkerStatus | None:
    """Return a status whose time begins when the pod is created, and not while an earlier one ends."""
    return before._replace(since=None) if before and before.message == ENDS_FIRST else before


@dataclass(frozen=True, slots=True)
class Pace:
    """Creations that an owner may still have at once, at a time on a clock that never goes back."""

    left: float
    at: float

    def after(self, now: float, burst: int, per_second: float) -> Pace:
        """Return the pace at a later time: creations come back, up to ``burst`` of them."""
        return Pace(min(float(burst), self.left + (now - self.at) * per_second), now)

    def taken(self) -> Pace:
        """Return the pace after one creation."""
        return Pace(self.left - 1, self.at)
