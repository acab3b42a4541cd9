"""Pure: GPUs that pods gained while they wait for more, and those of them that an earlier pod may have.

In a fair line several pods may each get a part of their wish. Where each needs all of it, none could go on, and none
would ever give anything back: the circular wait of hold and wait (Coffman, Elphick, Shoshani, "System Deadlocks",
1971). So what a pod had when its wait began is recorded beside its ticket. What it gained since, and does not use, goes
to a pod that came before and has waited too long, if that pod then has all that it wishes. Tickets order all pods, so
of those that wait one can always go on.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.gpu import GpuShare, total
from jupyter_gpu_scheduler.rules.state.beside_ticket import beside_ticket, without
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

HAD = "had"
"""Key in ``allocated`` beside a ticket of a fair line: the milli that the pod had when it began to wait. Ours alone."""


def with_had(before: Allocated, after: Allocated, *, fair: bool) -> Allocated:
    """Return ``after`` with what the pod had ``before`` it began to wait; without it where it does not wait."""
    if after.ticket is None or not fair:
        return without(after, HAD)
    if before.ticket is not None:
        return after
    return replace(after, extra={**after.extra, HAD: total(before.shares)})


def gained(pod: PodState, shares: Sequence[GpuShare]) -> Iterator[GpuShare]:
    """Yield those of a pod's ``shares`` that it gained while it waits and does not use, the newest first.

    None where it is not recorded what the pod had.
    """
    had, has = beside_ticket(pod.allocated, HAD), total(shares)
    if pod.standing is None or had is None:
        return
    for share in reversed(shares):
        has -= share.milli
        if has < had:
            return
        if share.uuid not in pod.busy:
            yield share
