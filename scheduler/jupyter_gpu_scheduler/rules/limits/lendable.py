"""Pure: whose whole GPUs may have guests: those of owners whose limit says so, or of pods that say it themselves."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu_scheduler.rules.state.pod_state import PodState

LENDABLE = "lendable"
"""Key in ``requested``: true for whole GPUs that may have guests, where no limit says whether they may."""


def lendable(pod: PodState, lends: bool, limit: bool | None) -> PodState:
    """Return a pod whose wish says whether its whole GPUs may have guests; itself where it says that already.

    ``lends``: whether the scheduler lends at all; ``limit``: what the limit of its owner says; ``None``: nothing.
    """
    if pod.requested is None:
        return pod
    own = pod.requested.extra.get(LENDABLE) is True
    may = lends and (own if limit is None else limit)
    if pod.requested.wish.lendable is may:
        return pod
    return replace(pod, requested=replace(pod.requested, wish=replace(pod.requested.wish, lendable=may)))
