"""Pure: whose whole GPUs may have guests: those of owners whose limit says so, or of pods that say it themselves."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu_scheduler.rules.state.pod_state import PodState


def lendable(pod: PodState, lends: bool, limit: bool | None) -> PodState:
    """Return a pod whose wish says whether its whole GPUs may have guests; itself where it says that already.

    ``lends``: whether the scheduler lends at all; ``limit``: what the limit of its owner says; ``None``: nothing.
    """
    if pod.requested is None:
        return pod
    may = lends and bool(pod.requested.wish.lendable if limit is None else limit)
    if pod.requested.wish.lent is may:
        return pod
    return replace(pod, requested=replace(pod.requested, wish=replace(pod.requested.wish, lent=may)))
