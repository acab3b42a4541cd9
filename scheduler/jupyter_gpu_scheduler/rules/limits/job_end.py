"""Pure: when the pod of a preemptible Job is asked to end, as others wait for GPUs that it has open.

Its programs get SIGTERM early enough to have their whole termination grace before the GPUs go, at the time that the
pod's record announced. A program that has closed them by then is left alone: an idle GPU is taken without it. Only
pods of Jobs and the like are ended: they say that they may be, and their controller can make them again. Everything
else drains.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from jupyter_gpu_scheduler.rules.state.pod_state import PodState

JOB_KINDS = (
    "Job.batch",
    "Workflow.argoproj.io",
    "JAXJob.kubeflow.org",
    "MPIJob.kubeflow.org",
    "PaddleJob.kubeflow.org",
    "PyTorchJob.kubeflow.org",
    "TFJob.kubeflow.org",
    "XGBoostJob.kubeflow.org",
    "RayCluster.ray.io",
    "Job.batch.volcano.sh",
)
"""Controllers of pods that compute and end: Kubernetes' own, workflow engines and training operators. JobSets and newer
training operators make Jobs."""
LEAST_SECONDS = 30
"""Seconds that programs have at least, however short the notice; less where their pod asks for less. The default of
``terminationGracePeriodSeconds``."""
PROOF_SECONDS = 3.0
"""Seconds that a node has to prove that what is given back is closed, before it counts as kept open."""


class JobEnd(NamedTuple):
    """The end of one pod."""

    at: float
    """Seconds since 1970 at which its programs get SIGTERM."""
    seconds: int
    """Seconds after which they are killed; at least 1, as 0 would remove the pod while they run."""


def job_end(pod: PodState, termination: int | None, now: float) -> JobEnd | None:
    """Return the end of ``pod``, as its record stands; ``None``: nothing that it has open is announced to be taken.

    ``termination``: its termination grace, in seconds; ``None``: it is of no Job, and never ended.
    """
    limit = pod.allocated.limit if pod.allocated else None
    if termination is None or limit is None or not pod.preemptible or pod.gone or pod.pending:
        return None
    goes_at = _goes_at(pod, now)
    if goes_at is None:
        return None
    seconds = min(termination, max(LEAST_SECONDS, math.ceil(goes_at - now)))
    return JobEnd(max(now, goes_at - seconds), max(1, seconds))


def _goes_at(pod: PodState, now: float) -> float | None:
    """Return when the first GPU goes that the pod has open: idle ones are taken before."""
    assert pod.allocated is not None
    assert pod.allocated.limit is not None
    idle = sum(share.milli for share in pod.allocated.shares if share.uuid not in pod.busy)
    for item in sorted(pod.allocated.limit.reclaimed, key=lambda item: item.at):
        if item.at <= now:  # it was taken already, and is awaited
            if pod.attached and pod.attached.draining and item.at + PROOF_SECONDS <= now:
                return now
        elif item.milli > idle:
            return item.at
        else:
            idle -= item.milli
    return None
