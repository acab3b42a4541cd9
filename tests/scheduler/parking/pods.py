"""Pods with something parked, resting or ordered, in one line."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from jupyter_gpu.model.annotations import Attached
from jupyter_gpu.model.parking import ParkedShare
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import GIB, uuid


def away(index: int, bundle: str = "x", *, milli: int = 1000, since: int = 100, **fields: Any) -> ParkedShare:
    """Return what a bundle has parked of one GPU; ``fields`` are those of `ParkedShare`."""
    return ParkedShare(uuid(index), milli, bundle, 8 * GIB, since, **fields)


def parked(pod: PodState, *shares: ParkedShare) -> PodState:
    """Return a pod of which these are parked; what it has attached stays."""
    return replace(pod, attached=replace(pod.attached or Attached(1), parked=shares))
