"""The workers of a pod on other nodes: what its annotations say of them, and what its user should know; pure.

Loaded with the first ``service`` of the pod, not when a server starts.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import SERVICE, WORKER_STATUS
from jupyter_gpu.model.cards import users
from jupyter_gpu.model.gpu import DrainingShare
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.pod_worker import PodWorker, Stage, elsewhere, pod_workers
from jupyter_gpu.model.service import decode_service, decode_worker_status
from jupyter_gpu.model.view import Condition

from . import conditions

_KINDS = (
    (("ErrImage", "ImagePull", "InvalidImageName", "RegistryUnavailable"), conditions.worker_image),
    (("exceeded quota", "failed quota"), conditions.worker_quota),
    (("PodSecurity",), conditions.worker_security),
)
"""Words of Kubernetes, and what they mean."""


class Workers(NamedTuple):
    """The workers of a pod."""

    known: tuple[PodWorker, ...] = ()
    elsewhere: int = 0
    """Milli of other nodes that the pod could have."""
    problems: tuple[Condition, ...] = ()
    """A condition for each annotation that cannot be read."""
    unseen: frozenset[str] = frozenset()
    """Ids of those of which the worker controller has said nothing."""
    kept_open: tuple[tuple[str, tuple[DrainingShare, ...]], ...] = ()
    """GPUs of other nodes that were given back and that programs of a worker have open, by node."""
    kinds: tuple[GpuKind, ...] = ()
    """The kinds of GPUs of other nodes that the pod could have."""

    @property
    def waited_for(self) -> frozenset[tuple[str, str]]:
        """Id and stage of each worker that should say something soon, or of which something should be said."""
        owed = (worker for worker in self.known if worker.milli)
        due = (one for one in owed if one.stage is Stage.CONNECTING or _is_unseen(one, self.unseen))
        return frozenset((one.id, one.stage.value) for one in due)


def read(pod: Mapping[str, Any] | None) -> Workers:
    """Read the workers of ``pod``; it has none where its ``service`` cannot be read."""
    service, why = objects.decoded(pod, SERVICE, decode_service)
    if service is None:
        return Workers(problems=(conditions.workers_unreadable(why),) if why else ())
    statuses, why = objects.decoded(pod, WORKER_STATUS, decode_worker_status)
    known = pod_workers(service, statuses.by_worker if statuses else {})
    seen = statuses.by_worker if statuses else {}
    unseen = frozenset(worker.id for worker in known if worker.id not in seen)
    problems = (conditions.workers_unreadable(why),) if why else ()
    kept_open = tuple((part.node, part.draining) for part in service.workers if part.draining)
    return Workers(known, elsewhere(service, known), problems, unseen, kept_open, service.kinds)


def _is_unseen(worker: PodWorker, unseen: Collection[str]) -> bool:
    return worker.stage is Stage.CREATING and worker.id in unseen


def troubles(workers: Sequence[PodWorker], silent: Collection[tuple[str, str]] = ()) -> Iterator[Condition]:
    """Say which workers do not run, why, and what can be done; one condition for each kind of trouble."""
    seen = set()
    for worker in workers:
        condition = _silence(worker) if (worker.id, worker.stage.value) in silent else _trouble(worker)
        if condition and condition.type not in seen:
            seen.add(condition.type)
            yield condition


def still_open(found: Workers) -> Iterator[Condition]:
    """Say which GPUs of other nodes wait for programs that have them open."""
    for node, shares in found.kept_open:
        holders = dict.fromkeys(holder for share in shares for holder in share.holders)
        yield conditions.worker_holds(node, len(shares), [user.name for user in users(holders)])


def _silence(worker: PodWorker) -> Condition:
    if worker.stage is Stage.CONNECTING:
        return conditions.worker_silent(worker.node)
    return conditions.controller_silent(worker.node)


def _trouble(worker: PodWorker) -> Condition | None:
    if worker.stage is Stage.CREATING and worker.message:
        return conditions.worker_waits(worker.node, worker.message)
    if not worker.hindered:
        return None
    said = (say for words, say in _KINDS if any(word in worker.message for word in words))
    other = conditions.worker_refused if worker.stage is Stage.REFUSED else conditions.worker_failed
    return next(said, other)(worker.node, worker.message)
