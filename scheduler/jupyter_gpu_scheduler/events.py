"""Events about decisions, for users. A grant of all that was wanted has none."""

from __future__ import annotations

from typing import Final, Literal

from jupyter_gpu.kube import Recorder
from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.wire import pod_reference

EVENTS: Final[dict[Reason, tuple[Literal["Normal", "Warning"], str]]] = {
    Reason.PARTIAL: ("Normal", "GpusPartial"),
    Reason.DEFERRED: ("Normal", "GpusDeferred"),
    Reason.INFEASIBLE: ("Warning", "GpusRefused"),
    Reason.LIMIT_EXCEEDED: ("Warning", "GpusRefused"),
}


def announce(recorder: Recorder, pod: PodState, allocated: Allocated) -> None:
    """Publish an Event about ``allocated`` if its reason or message is new; a wish with a fault has its own Event."""
    before = (pod.allocated.reason, pod.allocated.message) if pod.allocated else (None, "")
    if allocated.reason in EVENTS and (allocated.reason, allocated.message) != before and not pod.fault:
        kind, reason = EVENTS[allocated.reason]
        recorder.event(pod_reference(pod), kind, reason, allocated.message)
