"""Pure: pods of which nothing changed but the end of the slider, as others of their owner hold more or less now.

That gives and takes nothing, so no node is decided again for it. It is written by itself, after the decisions.
"""

from __future__ import annotations

from dataclasses import fields, replace
from operator import attrgetter

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.limits.pod_limit import PodLimit
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .decide import Decision

_SHOWN = ("allocated", "pod_limit")
_rest = attrgetter(*(each.name for each in fields(PodState) if each.compare and each.name not in _SHOWN))
_rest_of_record = attrgetter(*(each.name for each in fields(Allocated) if each.name != "limit"))
_rest_of_limit = attrgetter(*(each.name for each in fields(PodLimit) if each.name not in ("milli", "with_workers")))


def only_end_moved(before: PodState, after: PodState) -> bool:
    """Tell whether a running pod is the same as ``before``, but for the end of its slider and what is written of it."""
    if not before.node or not _same_but_end(before.pod_limit, after.pod_limit):
        return False
    return moves_end(before.allocated, after.allocated) and bool(_rest(before) == _rest(after))


def moves_end(before: Allocated | None, after: Allocated | None) -> bool:
    """Tell whether a decision is the same as ``before``, but for the end of the slider."""
    if before is after or before is None or after is None:
        return before is after and after is not None
    return _same_but_end(before.limit, after.limit) and bool(_rest_of_record(before) == _rest_of_record(after))


def moved_end(snapshot: ClusterSnapshot, uid: str) -> tuple[Decision, ...]:
    """Return the decision that writes the end of a pod's slider; none where it is written already."""
    pod = snapshot.pod(uid)
    if pod is None or pod.gone or pod.allocated is None or snapshot.gpus(pod.node) is None:
        return ()
    if not _same_but_end(pod.allocated.limit, pod.pod_limit) or pod.allocated.limit == pod.pod_limit:
        return ()
    return (Decision(uid, replace(pod.allocated, limit=pod.pod_limit)),)


def _same_but_end(before: PodLimit | None, after: PodLimit | None) -> bool:
    if before is None or after is None:
        return before is after
    return bool(_rest_of_limit(before) == _rest_of_limit(after))
