"""Pure: the workers of a notebook as decisions see them, and what ``service`` says of each.

A worker is a pod whose wish is its part of the notebook's. Before its pod is there it is a *promise*: a pod without a
node in the line of the node that the part names, so its GPUs are kept back from later pods. All of that follows from
``service`` and the pods alone, so another leader comes to the same.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Allocated, Requested
from jupyter_gpu.model.gpu import NO_REASON, DrainingShare, Gpu, GpuShare
from jupyter_gpu.model.service import Peer, Service, UnhealthyGpu, WorkerPart, WorkerService
from jupyter_gpu_scheduler.rules.state.permitted import with_amount
from jupyter_gpu_scheduler.rules.state.pod_state import NOMINATED, PodState

from .sets import alone, left, set_of

FIRST = 0
"""The ticket of a worker that has none yet. It was served behind all that waited when its part was made, and comes
before those of its priority that came later."""
MOST_HOLDERS = 8
"""The most programs that are named for a GPU that they keep open."""
MOST_HEALTH = 200
"""The most letters of the reason for which a GPU does not work: all parts of a pod stand in one annotation."""
OTHER_IMAGE = "This worker has another image than its notebook, so it gets no GPUs."


class WorkerPod(NamedTuple):
    """The pod of a worker, as far as its notebook must know it."""

    name: str
    uid: str
    address: str = ""
    peer: Peer | None = None
    attached: tuple[GpuShare, ...] = ()
    holds: bool = False
    """Whether it has GPUs, or has not closed all that it had."""
    draining: tuple[DrainingShare, ...] = ()
    """Shares that it gave back and has not closed."""
    unhealthy: tuple[UnhealthyGpu, ...] = ()
    """GPUs that stopped working, of those that it has and is to keep."""


def promise_uid(notebook: str, worker: str) -> str:
    """Return the uid by which a worker without a pod is known in the snapshot."""
    return f"worker:{notebook}:{worker}"


def own_part(pod: PodState, parts: Sequence[WorkerPart]) -> PodState:
    """Return a notebook that wishes what is left of its wish; one without a node has the set and the rest together."""
    asked = pod.requested
    if asked is None or not (asked.wish.set or any(part.milli for part in parts)):
        return pod
    wish = alone(asked.wish)
    if not pod.node:
        wish = replace(wish, milli=max(wish.milli, set_of(wish)), set=None)
    return replace(pod, requested=_with(asked, left(wish, parts, pod.has).milli))


def as_worker(
    pod: PodState, notebook: PodState | None, asked: Requested | None, part: WorkerPart | None, *, same_image: bool
) -> PodState:
    """Return a worker's pod with its part of what its notebook ``asked`` for.

    It wishes nothing without a notebook, or where ``service`` does not name it for its node.
    """
    if notebook is None or notebook.gone or part is None or pod.node not in ("", part.node):
        return replace(pod, requested=None, fault="", notebook=notebook.uid if notebook else "")
    fault = notebook.fault if same_image else OTHER_IMAGE
    allocated = pod.allocated
    if not pod.node and (allocated is None or allocated.ticket is None):
        allocated = _in_line(allocated or Allocated(0), part)
    return replace(
        pod,
        requested=_with(asked, part.milli) if asked and not fault else None,
        allocated=allocated,
        fault=fault,
        owner=notebook.owner,
        notebook=notebook.uid,
    )


def promise(notebook: PodState, asked: Requested, part: WorkerPart, asks: Mapping[str, int]) -> PodState:
    """Return the pod that stands for a worker which has no pod yet; ``asks``: what it will ask for beside GPUs."""
    return PodState(
        uid=promise_uid(notebook.uid, part.id),
        requested=_with(asked, part.milli),
        allocated=_in_line(Allocated(0), part),
        namespace=notebook.namespace,
        created=notebook.created,
        asks=asks,
        owner=notebook.owner,
        notebook=notebook.uid,
    )


def _with(asked: Requested, milli: int) -> Requested:
    return replace(asked, wish=with_amount(asked.wish, milli))


def _in_line(allocated: Allocated, part: WorkerPart) -> Allocated:
    return replace(allocated, ticket=FIRST, extra={**allocated.extra, NOMINATED: part.node})


def settled(
    service: Service,
    generation: int,
    pods: Mapping[str, WorkerPod],
    told: Collection[str],
    *,
    now: float,
    grace: float,
) -> Service:
    """Return ``service`` with what is known of the workers' pods, by id, and without those that are kept no more.

    A worker without a part that holds nothing is kept for the ``grace``. One whose pod was never there is not kept, if
    the worker controller has not ``told`` anything of it: a failure is remembered as long as the worker is named.
    """
    parts = []
    for part in service.workers:
        pod = pods.get(part.id)
        found = _aged(_filled(part, pod), now, holds=pod is not None and pod.holds)
        kept = pod is not None or part.id in told
        if found.idle_since is None or (kept and now < found.idle_since + grace):
            parts.append(found)
    return replace(service, generation=generation, workers=tuple(parts))


def moved(failed: Mapping[str, str], before: Sequence[WorkerPart], after: Sequence[WorkerPart]) -> tuple[str, ...]:
    """Return a sentence for each part that left a worker whose pod ``failed``, by id with the reason."""
    had = {part.id: part.milli for part in before}
    more = [part.node for part in after if part.milli > had.get(part.id, 0)]
    left = [part for part in after if part.id in failed and part.milli < had.get(part.id, 0)]
    return tuple(
        f"{', '.join(more)} gives the GPUs that {part.node} was to give. {failed[part.id]}" for part in left if more
    )


def ends_at(service: Service, grace: float) -> float | None:
    """Return when the next worker without a part is kept no longer; ``None``: there is none."""
    return min((part.idle_since + grace for part in service.workers if part.idle_since is not None), default=None)


def accepted(before: WorkerService | None, notebook: PodState, worker: str, peer: Peer | None) -> WorkerService:
    """Return the ``service`` of a worker's pod: the notebook that it accepts, by the key that it has said."""
    key = dict(peer.keys).get(worker, "") if peer else ""
    known = before or WorkerService(notebook.name, notebook.uid)
    revision = known.revision + (known.key != key)
    return replace(known, name=notebook.name, uid=notebook.uid, key=key, revision=revision)


def _filled(part: WorkerPart, pod: WorkerPod | None) -> WorkerPart:
    if pod is None:
        found = replace(part, pod="", uid="", address="", port=None, key="", attached=(), draining=(), unhealthy=())
    else:
        key, port = (pod.peer.key, pod.peer.port) if pod.peer and pod.peer.key else ("", None)
        found = replace(part, pod=pod.name, uid=pod.uid, address=pod.address, port=port, key=key, attached=pod.attached)
        found = replace(found, draining=held_open(pod.draining), unhealthy=pod.unhealthy)
    changed = (part.address, part.port, part.key) != (found.address, found.port, found.key)
    return replace(found, revision=part.revision + changed)


def held_open(draining: Iterable[DrainingShare]) -> tuple[DrainingShare, ...]:
    """Return the shares that programs keep from being closed, with the first `MOST_HOLDERS` of these for each.

    Others are closed in a moment, which is not worth a write.
    """
    return tuple(share._replace(holders=share.holders[:MOST_HOLDERS], memory=0) for share in draining if share.holders)


def broken(pod: PodState, gpus: Iterable[Gpu]) -> tuple[UnhealthyGpu, ...]:
    """Return the GPUs of ``gpus`` that stopped working, of those that a pod can open and is to keep.

    As on a notebook's own node, such a GPU stays until the notebook's user gives it back.
    """
    shares = (pod.attached.shares if pod.attached else (), pod.allocated.shares if pod.allocated else ())
    attached, decided = ({share.uuid for share in some} for some in shares)
    such = (gpu for gpu in gpus if not gpu.healthy and gpu.uuid in attached & decided)
    return tuple(UnhealthyGpu(gpu.uuid, (gpu.health or NO_REASON)[:MOST_HEALTH]) for gpu in such)


def _aged(part: WorkerPart, now: float, *, holds: bool) -> WorkerPart:
    if part.milli or holds:
        return replace(part, idle_since=None)
    return part if part.idle_since is not None else replace(part, idle_since=int(now))
