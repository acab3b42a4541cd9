"""The GPUs of other nodes as the user of a pod sees them: one value, and one card, for each of its workers; pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from . import strict
from .gpu import MAX_GPUS, MAX_HEALTH, GpuShare, read_health, total
from .gpu_kind import GpuKind, read_gpu_kinds
from .message import gettext
from .quantity import MAX_MILLI
from .service import MAX_WORKERS, Relation, Service, WorkerPart, WorkerState, WorkerStatus, read_worker_id

_MAX_MESSAGE = 1024
_read_shares = strict.list_of(GpuShare.from_json, MAX_GPUS)
_read_count = strict.integer(0, strict.MAX_GENERATION)


class Stage(StrEnum):
    """The way of a worker to its notebook: its pod is created, its image pulled, its process asked for its key."""

    CREATING = "creating"
    PULLING = "pulling"
    CONNECTING = "connecting"
    READY = "ready"
    REFUSED = "refused"
    """Kubernetes does not take it; it is tried again."""
    FAILED = "failed"
    """It ended by itself; it is tried again."""


_STAGES: Mapping[WorkerState, Stage] = {
    WorkerState.CREATING: Stage.CREATING,
    WorkerState.PULLING: Stage.PULLING,
    WorkerState.RUNNING: Stage.CONNECTING,
    WorkerState.REFUSED: Stage.REFUSED,
    WorkerState.FAILED: Stage.FAILED,
}


class PodWorker(NamedTuple):
    """A worker of the pod, and the GPUs of its node that the pod has through it.

    What only the worker can measure is ``None`` until somebody has asked it. The load of its GPUs is in `Sample`, by
    uuid, as that of all others.
    """

    id: str
    node: str
    relation: Relation
    stage: Stage
    milli: int = 0
    """Amount that the pod is to have there; 0: nothing any more, and the worker is kept for a while."""
    gpus: tuple[GpuShare, ...] = ()
    """Shares that the worker can open, in the order in which its programs see them."""
    message: str = ""
    """Kubernetes' words about a worker that does not run."""
    idle_since: int | None = None
    """Seconds since 1970 at which it had no part any more."""
    shipped: int | None = None
    """Bytes that were sent there and came back."""
    round_trip: int | None = None
    """Microseconds from a question to its answer."""
    kinds: tuple[GpuKind, ...] = ()
    """The kinds of ``gpus``, in their order; empty while they are not known."""
    health: tuple[str, ...] = ()
    """The reason for which each of ``gpus`` does not work, in their order; "": it works. Empty: all work."""

    @property
    def reasons(self) -> tuple[tuple[GpuShare, str], ...]:
        """Each of ``gpus``, with the reason for which it does not work; "": it works."""
        return tuple(zip(self.gpus, self.health or [""] * len(self.gpus), strict=True))

    @property
    def unhealthy(self) -> tuple[GpuShare, ...]:
        """The shares of GPUs that stopped working."""
        return tuple(share for share, health in self.reasons if health)

    @property
    def held(self) -> int:
        """Milli that it can open, whether or not the pod reaches it."""
        return total(self.gpus)

    @property
    def usable(self) -> int:
        """Milli that the pod can use there now."""
        return self.held if self.stage is Stage.READY else 0

    @property
    def missing(self) -> int:
        """Milli of its part that cannot be used yet."""
        return max(0, self.milli - self.usable)

    @property
    def attaching(self) -> bool:
        """Whether it runs and is about to get the rest of its GPUs."""
        return self.stage is Stage.READY and self.missing > 0

    @property
    def leaving(self) -> int:
        """Milli that it has above its part, and gives back."""
        return max(0, self.held - self.milli)

    @property
    def hindered(self) -> bool:
        """Whether it cannot run now, and is tried again."""
        return self.stage in (Stage.REFUSED, Stage.FAILED)

    def to_json(self) -> dict[str, Any]:
        """Return the item of ``workers``; what is not known is left out."""
        body = {
            "message": strict.printable(self.message, _MAX_MESSAGE) if self.message else None,
            "idleSince": self.idle_since,
            "shipped": self.shipped,
            "roundTrip": self.round_trip,
            "kinds": [kind.to_json() for kind in self.kinds] or None,
        }
        return {
            "id": self.id,
            "node": self.node,
            "relation": self.relation.value,
            "stage": self.stage.value,
            "milli": self.milli,
            "gpus": [_gpu_json(share, health) for share, health in self.reasons],
            **strict.without_none(body),
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "worker") -> PodWorker:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        gpus = strict.required(body, "gpus", _read_shares)
        health = strict.required(body, "gpus", strict.list_of(_read_health, MAX_GPUS))
        kinds = strict.optional(body, "kinds", read_gpu_kinds) or ()
        if kinds and len(kinds) != len(gpus):
            raise strict.FieldError(gettext("'kinds' must have one kind for each of 'gpus'."), "kinds")
        return cls(
            id=strict.required(body, "id", read_worker_id),
            node=strict.required(body, "node", strict.text(253)),
            relation=Relation(strict.required(body, "relation", strict.one_of(*Relation))),
            stage=Stage(strict.required(body, "stage", strict.one_of(*Stage))),
            milli=strict.required(body, "milli", strict.integer(0, MAX_MILLI)),
            gpus=gpus,
            message=strict.optional(body, "message", strict.label(_MAX_MESSAGE)) or "",
            idle_since=strict.optional(body, "idleSince", strict.read_time),
            shipped=strict.optional(body, "shipped", _read_count),
            round_trip=strict.optional(body, "roundTrip", _read_count),
            kinds=kinds,
            health=health if any(health) else (),
        )


def _gpu_json(share: GpuShare, health: str) -> dict[str, Any]:
    return {**share.to_json(), **({"health": strict.printable(health, MAX_HEALTH)} if health else {})}


def _read_health(value: Any, key: str) -> str:
    return strict.optional(strict.an_object(value, key), "health", read_health) or ""


read_workers = strict.list_of(PodWorker.from_json, MAX_WORKERS)
"""Reads the list of a view."""


def pod_workers(service: Service, statuses: Mapping[str, WorkerStatus]) -> tuple[PodWorker, ...]:
    """Return the workers of ``service`` with what the worker controller says of each, oldest first."""
    return tuple(_worker(part, statuses.get(part.id)) for part in service.workers)


def elsewhere(service: Service, workers: Sequence[PodWorker]) -> int:
    """Return the milli of other nodes that the pod could have: at least what it has there, and is to have."""
    return min(MAX_MILLI, max(service.elsewhere, sum(max(worker.milli, worker.held) for worker in workers)))


def _worker(part: WorkerPart, status: WorkerStatus | None) -> PodWorker:
    stage = _STAGES[status.state] if status else Stage.CREATING
    if part.ready and stage not in (Stage.REFUSED, Stage.FAILED):
        stage = Stage.READY
    message = status.message if status and stage is not Stage.READY else ""
    reasons = {gpu.uuid: gpu.health for gpu in part.unhealthy}
    health = tuple(reasons.get(share.uuid, "") for share in part.attached)
    return PodWorker(
        part.id,
        part.node,
        part.relation,
        stage,
        part.milli,
        part.attached,
        message,
        idle_since=part.idle_since,
        health=health if any(health) else (),
    )
