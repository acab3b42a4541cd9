"""Pure: whose whole GPUs may have guests: those of owners whose limit says so, or of pods that say it themselves."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu_scheduler.rules.state.pod_state import PodState


def lendable(pod: PodState, lends: bool, limit: bool | None) -> PodState:
    """Return a pod whose wish says whether its whole GPUs may have guests; itself where it says that already.

    ``lends``: whether the scheduler lends at all; ``limit``: what the limit of its owner says; ``None``: nothing.
    """
    by_wish, requested = lends and limit is None, pod.requested
    if requested is not None:
        may = lends and bool(requested.wish.lendable if limit is None else limit)
        if requested.wish.lent is not may:
            requested = replace(requested, wish=replace(requested.wish, lent=may))
    if requested is pod.requested and pod.lends_by_wish is by_wish:
        return pod
    return replace(pod, requested=requested, lends_by_wish=by_wish)
