"""Admission: the GPUs of a new pod, chosen at the moment when it is bound to its node."""

from __future__ import annotations

from dataclasses import replace

from jupyter_gpu.model.annotations import Allocated, Reason, Wish
from jupyter_gpu.model.demand import share_memory
from jupyter_gpu.model.errors import BackendUnavailable, GpuError, Infeasible, InvalidRequest, NoCapacity
from jupyter_gpu.model.gpu import GpuShare, total
from jupyter_gpu_scheduler.rules.queue.candidates import unacceptable
from jupyter_gpu_scheduler.rules.queue.decide import over_limit
from jupyter_gpu_scheduler.rules.queue.fit_cache import exact_fit
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot


def allocate(snapshot: ClusterSnapshot, pod: PodState, node: str) -> Allocated | GpuError:
    """Return the ``allocated`` that the Binding of ``pod`` to ``node`` carries, or why the pod can't be bound there.

    The snapshot is unchanged. For a pod that is already bound there, return what it has, so a repeated call is safe.
    """
    bound = snapshot.pod(pod.uid)
    if bound and not bound.pending:
        if bound.node != node:
            return InvalidRequest(f"The pod is on {bound.node} already, so it can't be bound to {node}.")
        return bound.allocated or Allocated(0)
    error = unacceptable(pod)
    if error is not None:
        return error
    gpus = snapshot.gpus(node)
    if gpus is None:
        return BackendUnavailable(f"The GPUs of {node} are not known, so nothing of it can be allocated.")
    found, ahead = exact_fit(snapshot, pod, node)
    if found.never:
        return Infeasible(f"{node} can't serve this: {found.why}.", have=0)
    if not found.fits:
        have = sum(milli for _, milli in found.grants)
        return NoCapacity(f"{node} can't serve this now: {found.why}.", have=have, queue=ahead + 1)
    extra = {key: value for key, value in (pod.allocated.extra if pod.allocated else {}).items() if key != NOMINATED}
    wish = pod.wish or Wish(0)
    given = ((gpus[index], milli) for index, milli in found.grants)
    shares = tuple(GpuShare(gpu.uuid, milli, share_memory(gpu, wish, milli)) for gpu, milli in given)
    made = Allocated(pod.requested.generation if pod.requested else 0, shares, limit=pod.pod_limit, extra=extra)
    return replace(made, reason=Reason.LIMIT_EXCEEDED, message=over_limit(pod, total(shares))) if pod.cut else made
