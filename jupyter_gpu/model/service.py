"""The wire vocabulary of GPUs on other nodes: which workers a notebook has, who they are, and the keys of both. Pure.

| object       | key                 | class            | meaning                                                   |
|--------------|---------------------|------------------|-----------------------------------------------------------|
| notebook Pod | ``service``         | `Service`        | its workers: parts of its wish that other nodes serve     |
| worker Pod   | ``service``         | `WorkerService`  | the one notebook that it accepts                          |
| worker Pod   | ``worker``          | `WorkerIdentity` | whose worker it is; never changes                         |
| notebook Pod | ``worker-status``   | `WorkerStatuses` | by worker: why it is not there yet                        |
| both         | ``attached``.peer   | `Peer`           | the public keys that the pod says are its own             |

A notebook whose ``service`` names no worker is one whose workers have ended. Only public keys travel. Readers are
strict about known fields; fields of a newer version are kept, but for those inside ``peer`` and ``worker-status``.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, NamedTuple, TypeVar

from . import strict
from .annotations import SERVICE, WORKER, WORKER_STATUS, decode
from .gpu import MAX_GPUS, MAX_HEALTH, DrainingShare, GpuShare, read_health, read_uuid
from .gpu_kind import GpuKind, read_gpu_kinds
from .quantity import MAX_MILLI

T = TypeVar("T")

MAX_WORKERS = 8
"""The most workers of one pod that a reader takes."""

Z85 = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
"""The letters of a key, as ZeroMQ's RFC 32 orders them."""
_KEY = 40  # characters

_read_count = strict.integer(0, strict.MAX_GENERATION)
_read_port = strict.integer(1, 65535)
_read_name = strict.text(253)
_read_uid = strict.text(128)
_read_shares = strict.list_of(GpuShare.from_json, MAX_GPUS)
_read_draining = strict.list_of(DrainingShare.from_json, MAX_GPUS)


class Relation(StrEnum):
    """The distance of a worker's node from the notebook's, nearest first."""

    NODE = "node"
    """The same node."""
    SWITCH = "switch"
    """The same switch."""
    OTHER = "other"
    """Another switch."""
    UNKNOWN = "unknown"


class WorkerState(StrEnum):
    """The state of a worker pod, as the worker controller tells it."""

    CREATING = "Creating"
    PULLING = "Pulling"
    RUNNING = "Running"
    REFUSED = "Refused"
    """Quota, Pod Security or the image: Kubernetes did not take it."""
    FAILED = "Failed"


def read_key(value: Any, key: str = "key") -> str:
    """Read a public CurveZMQ key: 32 bytes, written as 40 characters of Z85. Raises `FieldError`."""
    if isinstance(value, str) and len(value) == _KEY and all(letter in Z85 for letter in value):
        groups = (value[start : start + 5] for start in range(0, _KEY, 5))
        if all(_number(group) < 2**32 for group in groups):
            return value
    raise strict.FieldError(f"{key!r} must be a public key: {_KEY} characters of Z85.", key)


def _number(group: str) -> int:
    value = 0
    for letter in group:
        value = value * len(Z85) + Z85.index(letter)
    return value


def read_worker_id(value: Any, key: str = "id") -> str:
    """Read the name of a worker among those of its notebook, such as ``w1``. Raises `FieldError`."""
    if not isinstance(value, str) or not re.fullmatch(r"w[1-9][0-9]{0,8}", value):
        raise strict.FieldError(f"{key!r} must be the name of a worker, such as 'w1'.", key)
    return value


def _read_address(value: Any, key: str) -> str:
    """Read an IP address: a name would be resolved by the network, and an IPv6 zone is of one node only."""
    try:
        if isinstance(value, str) and "%" not in value:
            ipaddress.ip_address(value)
            return value
    except ValueError:
        pass
    raise strict.FieldError(f"{key!r} must be an IP address.", key)


def _distinct(key: str, names: Sequence[str], what: str) -> None:
    if len(set(names)) != len(names):
        raise strict.FieldError(f"{key!r} names a {what} twice.", key)


class UnhealthyGpu(NamedTuple):
    """A GPU that does not work any more."""

    uuid: str
    health: str
    """The reason, in plain words."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"uuid", "health"}``."""
        return {"uuid": self.uuid, "health": strict.printable(self.health, MAX_HEALTH)}

    @classmethod
    def from_json(cls, value: Any, key: str = "unhealthy") -> UnhealthyGpu:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(strict.required(body, "uuid", read_uuid), strict.required(body, "health", read_health))


_read_unhealthy = strict.list_of(UnhealthyGpu.from_json, MAX_GPUS)


@dataclass(frozen=True, slots=True)
class WorkerPart:
    """One worker of a notebook, and the part of its wish that the worker's node serves."""

    id: str
    """Unique among the pod's workers, and among those whose pods may still be there."""
    node: str
    milli: int = 0
    """Amount that the notebook is to have there; 0: nothing any more, and the worker is kept warm."""
    relation: Relation = Relation.UNKNOWN
    pod: str = ""
    """Name of the worker pod; empty until it exists, as is ``uid``."""
    uid: str = ""
    address: str = ""
    """IP address of the worker pod; empty until it is known."""
    port: int | None = None
    """Port of the control channel; ``None``, as ``key``, until the worker has said it."""
    key: str = ""
    """Public key of the worker; empty until the worker has said it."""
    attached: tuple[GpuShare, ...] = ()
    """Shares that the worker pod can really open."""
    idle_since: int | None = None
    """Seconds since 1970 at which it had no part any more; ``None``: it has one."""
    revision: int = 0
    """Number of changes of the worker's key or address."""
    draining: tuple[DrainingShare, ...] = ()
    """Shares that it gave back, and that programs still have open."""
    unhealthy: tuple[UnhealthyGpu, ...] = ()
    """GPUs that stopped working, of those that it has and is to keep."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _KNOWN = (
        *("id", "node", "milli", "relation", "pod", "uid", "address", "port", "key", "attached"),
        *("idleSince", "revision", "draining", "unhealthy"),
    )

    @property
    def ready(self) -> bool:
        """Whether a notebook can reach it: address, port and key are known."""
        return bool(self.address and self.port and self.key)

    def to_json(self) -> dict[str, Any]:
        """Return the item of ``workers``; what is not known yet is left out."""
        body = {
            "id": self.id,
            "node": self.node,
            "milli": self.milli,
            "relation": self.relation.value,
            "pod": self.pod or None,
            "uid": self.uid or None,
            "address": self.address or None,
            "port": self.port,
            "key": self.key or None,
            "attached": [share.to_json() for share in self.attached] or None,
            "idleSince": self.idle_since,
            "revision": self.revision or None,
            "draining": [share.to_json() for share in self.draining] or None,
            "unhealthy": [gpu.to_json() for gpu in self.unhealthy] or None,
        }
        return {**strict.without_none(body), **self.extra}

    @classmethod
    def from_json(cls, value: Any, key: str = "worker") -> WorkerPart:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        attached = strict.optional(body, "attached", _read_shares) or ()
        _distinct("attached", [share.uuid for share in attached], "GPU")
        unhealthy = strict.optional(body, "unhealthy", _read_unhealthy) or ()
        _distinct("unhealthy", [gpu.uuid for gpu in unhealthy], "GPU")
        return cls(
            id=strict.required(body, "id", read_worker_id),
            node=strict.required(body, "node", _read_name),
            milli=strict.required(body, "milli", strict.integer(0, MAX_MILLI)),
            relation=Relation(strict.required(body, "relation", strict.one_of(*Relation))),
            pod=strict.optional(body, "pod", _read_name) or "",
            uid=strict.optional(body, "uid", _read_uid) or "",
            address=strict.optional(body, "address", _read_address) or "",
            port=strict.optional(body, "port", _read_port),
            key=strict.optional(body, "key", read_key) or "",
            attached=attached,
            idle_since=strict.optional(body, "idleSince", strict.read_time),
            revision=strict.optional(body, "revision", _read_count) or 0,
            draining=strict.optional(body, "draining", _read_draining) or (),
            unhealthy=unhealthy,
            extra=strict.unknown(body, cls._KNOWN),
        )


@dataclass(frozen=True, slots=True)
class Service:
    """The workers of a notebook, as the scheduler decided them."""

    generation: int
    """Generation of the wish that it serves."""
    workers: tuple[WorkerPart, ...] = ()
    """Oldest first, at most `MAX_WORKERS`."""
    elsewhere: int = 0
    """Milli of all GPUs of other nodes that the pod could ever have; 0: not said."""
    kinds: tuple[GpuKind, ...] = ()
    """The kinds of these GPUs; empty: not said."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _KNOWN = ("generation", "workers", "elsewhere", "kinds")

    def worker(self, name: str) -> WorkerPart | None:
        """Return the worker with this id; ``None`` if there is none."""
        return next((worker for worker in self.workers if worker.id == name), None)

    def to_json(self) -> dict[str, Any]:
        """Return the body of the annotation."""
        workers = [worker.to_json() for worker in self.workers]
        more = {"elsewhere": self.elsewhere or None, "kinds": [kind.to_json() for kind in self.kinds] or None}
        return {"generation": self.generation, "workers": workers, **strict.without_none(more), **self.extra}

    @classmethod
    def from_json(cls, value: Any) -> Service:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, "service")
        workers = strict.required(body, "workers", strict.list_of(WorkerPart.from_json, MAX_WORKERS))
        _distinct("workers", [worker.id for worker in workers], "worker")
        _distinct("workers", [worker.uid for worker in workers if worker.uid], "pod")
        if sum(len(worker.attached) for worker in workers) > MAX_GPUS:
            raise strict.FieldError(f"'workers' have more than {MAX_GPUS} shares together.", "workers")
        generation = strict.required(body, "generation", _read_count)
        elsewhere = strict.optional(body, "elsewhere", strict.integer(0, MAX_MILLI)) or 0
        kinds = strict.optional(body, "kinds", read_gpu_kinds) or ()
        return cls(generation, workers, elsewhere, kinds, strict.unknown(body, cls._KNOWN))


@dataclass(frozen=True, slots=True)
class WorkerService:
    """The one notebook that a worker accepts."""

    name: str
    """Name of the notebook's pod, for people."""
    uid: str
    key: str = ""
    """Public key of the notebook for this worker; empty until the notebook has said it: then nobody is accepted."""
    revision: int = 0
    """Number of changes of the key."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _KNOWN = ("notebook", "revision")

    def to_json(self) -> dict[str, Any]:
        """Return the body of the annotation."""
        notebook = strict.without_none({"name": self.name, "uid": self.uid, "key": self.key or None})
        return {"notebook": notebook, **({"revision": self.revision} if self.revision else {}), **self.extra}

    @classmethod
    def from_json(cls, value: Any) -> WorkerService:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, "service")
        notebook = strict.required(body, "notebook", strict.an_object)
        return cls(
            name=strict.required(notebook, "name", _read_name),
            uid=strict.required(notebook, "uid", _read_uid),
            key=strict.optional(notebook, "key", read_key) or "",
            revision=strict.optional(body, "revision", _read_count) or 0,
            extra=strict.unknown(body, cls._KNOWN),
        )


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """The notebook whose worker a pod is, and which one: written when the pod is created, and never changed."""

    notebook: str
    """Uid of the notebook's pod."""
    id: str
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)

    _KNOWN = ("notebook", "id")

    def to_json(self) -> dict[str, Any]:
        """Return the body of the annotation."""
        return {"notebook": self.notebook, "id": self.id, **self.extra}

    @classmethod
    def from_json(cls, value: Any) -> WorkerIdentity:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, "worker")
        return cls(
            notebook=strict.required(body, "notebook", _read_uid),
            id=strict.required(body, "id", read_worker_id),
            extra=strict.unknown(body, cls._KNOWN),
        )


class WorkerStatus(NamedTuple):
    """The state of one worker pod, and the reason where it can't run."""

    state: WorkerState
    message: str = ""
    """Kubernetes' words, for people."""
    tries: int = 0
    """Number of times that it was created in vain."""
    since: int | None = None
    """Seconds since 1970 at which it came into this state."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"state", "message"?, "tries"?, "since"?}``."""
        body = {
            "state": self.state.value,
            "message": strict.printable(self.message, 1024) if self.message else None,
            "tries": self.tries or None,
            "since": self.since,
        }
        return strict.without_none(body)

    @classmethod
    def from_json(cls, value: Any, key: str = "worker") -> WorkerStatus:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            state=WorkerState(strict.required(body, "state", strict.one_of(*WorkerState))),
            message=strict.optional(body, "message", strict.label(1024)) or "",
            tries=strict.optional(body, "tries", strict.integer(0, 10**6)) or 0,
            since=strict.optional(body, "since", strict.read_time),
        )


@dataclass(frozen=True, slots=True)
class WorkerStatuses:
    """The states of a notebook's workers by their ids."""

    by_worker: Mapping[str, WorkerStatus] = field(default_factory=dict, hash=False)

    def to_json(self) -> dict[str, Any]:
        """Return the body of the annotation."""
        return {name: status.to_json() for name, status in self.by_worker.items()}

    @classmethod
    def from_json(cls, value: Any) -> WorkerStatuses:
        """Read and check the JSON; raises `FieldError`."""
        return cls(_by_worker(value, "worker-status", WorkerStatus.from_json))


@dataclass(frozen=True, slots=True)
class Peer:
    """The public keys that a pod says are its own: a worker has one, and a notebook one for each of its workers."""

    key: str = ""
    """A worker's key; empty for a notebook."""
    port: int | None = None
    """The port of a worker's control channel; ``None`` for a notebook."""
    keys: tuple[tuple[str, str], ...] = ()
    """A notebook's keys by worker."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"key", "port"}`` or ``{"keys"}``."""
        return {"key": self.key, "port": self.port} if self.key else {"keys": dict(self.keys)}

    @classmethod
    def from_json(cls, value: Any, key: str = "peer") -> Peer:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        keys = strict.optional(body, "keys", _read_keys)
        if keys is None:
            return cls(strict.required(body, "key", read_key), strict.required(body, "port", _read_port))
        if body.get("key") is not None:
            raise strict.FieldError(f"{key!r} must have 'key' or 'keys': a pod is a worker, or has workers.", key)
        return cls(keys=tuple(keys.items()))


def _by_worker(value: Any, key: str, read: Callable[[Any, str], T]) -> dict[str, T]:
    body = strict.an_object(value, key)
    if len(body) > MAX_WORKERS:
        raise strict.FieldError(f"{key!r} names more than {MAX_WORKERS} workers.", key)
    return {read_worker_id(name, key): read(item, f"{key}.{name}") for name, item in body.items()}


def _read_keys(value: Any, key: str) -> dict[str, str]:
    return _by_worker(value, key, read_key)


def decode_service(text: str | bytes) -> Service:
    """Decode the ``service`` annotation of a notebook's pod; raises `InvalidAnnotation`."""
    return decode(SERVICE, text, Service.from_json)


def decode_worker_service(text: str | bytes) -> WorkerService:
    """Decode the ``service`` annotation of a worker pod; raises `InvalidAnnotation`."""
    return decode(SERVICE, text, WorkerService.from_json)


def decode_worker(text: str | bytes) -> WorkerIdentity:
    """Decode the ``worker`` annotation; raises `InvalidAnnotation`."""
    return decode(WORKER, text, WorkerIdentity.from_json)


def decode_worker_status(text: str | bytes) -> WorkerStatuses:
    """Decode the ``worker-status`` annotation; raises `InvalidAnnotation`."""
    return decode(WORKER_STATUS, text, WorkerStatuses.from_json)
