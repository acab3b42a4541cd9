"""Waiting times, and the limit after which no later pod may overtake. Pure; the time is an argument.

The start of the wait is written beside the ticket, once, so that it outlives the leader. A pod that has waited longer
than the configured patience counts as highest priority: from then on no pod that asked later is served before it,
whatever its priority.
"""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu_scheduler.rules.state.beside_ticket import beside_ticket, without

SINCE = "since"
"""Key in ``allocated`` beside a ticket, which only the scheduler writes: when the wait began, in seconds. In a cluster
since 1970, on which all replicas agree; on one machine since it was booted, as clocks can be set back."""


def waits_since(allocated: Allocated | None) -> int | None:
    """Return when a pod began to wait; ``None``: it does not wait, or the time was not recorded."""
    return beside_ticket(allocated, SINCE)


def stamped(allocated: Allocated, now: float) -> Allocated:
    """Return the record with the time beside a new ticket; without a ticket, without a time."""
    if allocated.ticket is None:
        return without(allocated, SINCE)
    if waits_since(allocated) is not None:
        return allocated
    return replace(allocated, extra={**allocated.extra, SINCE: int(now)})


def overdue_at(allocated: Allocated | None, patience: float) -> float | None:
    """Return when a pod's wait exceeds the patience; ``None``: it does not wait."""
    since = waits_since(allocated)
    return None if since is None else since + patience


def is_overdue(allocated: Allocated | None, patience: float, now: float) -> bool:
    """Tell whether a pod has waited longer than the patience."""
    when = overdue_at(allocated, patience)
    return when is not None and when <= now
