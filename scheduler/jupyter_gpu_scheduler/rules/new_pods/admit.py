"""Admission: the GPUs of a new pod, chosen at the moment when it is bound to its node.

They are those of that node. Where it can't serve all of the wish, another node may give them by a worker, whose part
the Binding carries: all of them, or if no other node can, the rest beside what the pod's node has. All of the wish is
promised, or the pod is not bound, but for one that starts as a guest (`guests`).
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Allocated, Reason, Wish
from jupyter_gpu.model.demand import share_memory
from jupyter_gpu.model.errors import BackendUnavailable, GpuError, Infeasible, InvalidRequest, NoCapacity
from jupyter_gpu.model.gpu import GpuShare, total
from jupyter_gpu.model.service import WorkerPart
from jupyter_gpu_scheduler.rules.pairs.choose import Pair, PairChooser
from jupyter_gpu_scheduler.rules.pairs.joint import joints
from jupyter_gpu_scheduler.rules.queue.candidates import unacceptable
from jupyter_gpu_scheduler.rules.queue.decide import over_limit
from jupyter_gpu_scheduler.rules.queue.fit_cache import exact_fit, wanted
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .guests import guest_on
from .places import is_first


class Admission(NamedTuple):
    """The annotations that the Binding of a pod carries."""

    allocated: Allocated
    part: WorkerPart | None = None
    """The part of another node."""


def admit(snapshot: ClusterSnapshot, chooser: PairChooser, pod: PodState, node: str) -> Admission | GpuError:
    """Return what the Binding of ``pod`` to ``node`` carries, or why the pod can't be bound there; see `allocate`."""
    found = _with_gpus(snapshot, chooser, pod, node)
    if isinstance(found, NoCapacity) and (guest := guest_on(snapshot, pod, node)):
        return Admission(guest)
    return found


def _with_gpus(snapshot: ClusterSnapshot, chooser: PairChooser, pod: PodState, node: str) -> Admission | GpuError:
    found = allocate(snapshot, pod, node)
    if isinstance(found, Allocated):
        return Admission(found)
    wish = wanted(pod)
    if not pod.anywhere or wish is None or not isinstance(found, (NoCapacity, Infeasible)):
        return found
    if not is_first(snapshot, chooser, pod):
        return _none_elsewhere(found)
    if pair := chooser.beside(pod, node):
        return Admission(_made(pod, (), wish.milli), _part(chooser, pair, wish.milli))
    joint = joints(chooser, pod, (node,)).get(node)
    own = allocate(snapshot, joint.here, node) if joint else found
    if joint is None or not isinstance(own, Allocated):
        return _none_elsewhere(found)
    return Admission(_made(pod, own.shares, wish.milli), _part(chooser, joint.pair, joint.rest))


def _part(chooser: PairChooser, pair: Pair, milli: int) -> WorkerPart:
    return WorkerPart("w1", pair.gpu_node, milli, chooser.relation(pair))


def _none_elsewhere(found: GpuError) -> GpuError:
    return NoCapacity(f"{found.message} No other node can give the GPUs now, either.", have=0, queue=0)


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
    wish = pod.wish or Wish(0)
    given = ((gpus[index], milli) for index, milli in found.grants)
    shares = tuple(GpuShare(gpu.uuid, milli, share_memory(gpu, wish, milli)) for gpu, milli in given)
    return _made(pod, shares, total(shares))


def _made(pod: PodState, shares: tuple[GpuShare, ...], milli: int) -> Allocated:
    """Return ``allocated`` with these shares of a pod that is given so much in all."""
    extra = {key: value for key, value in (pod.allocated.extra if pod.allocated else {}).items() if key != NOMINATED}
    generation = pod.requested.generation if pod.requested else 0
    made = Allocated(generation, shares, limit=pod.pod_limit, lendable=pod.lendable, extra=extra)
    return replace(made, reason=Reason.LIMIT_EXCEEDED, message=over_limit(pod, milli)) if pod.cut else made
