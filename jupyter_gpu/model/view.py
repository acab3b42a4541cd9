"""The view that one pod's user has: the answer of ``GET status``, the messages of the stream, ``gpu.status()``.

One immutable value holds everything, so that panel, code and terminal can never disagree. The server
makes it from a backend's state; the kernel's client reads it back. ``docs/openapi.yaml`` describes the JSON.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

from . import strict
from .annotations import Allocated, Attached, Requested
from .gpu import Gpu, read_command, total
from .quantity import MAX_MILLI, MILLI_PER_GPU
from .status import Status, status
from .stranger import MAX_STRANGERS, Stranger

if TYPE_CHECKING:  # loaded with the first GPU, limit, park, worker or share, not when a server or a kernel starts
    from .gpu_kind import GpuKind
    from .limits.pod_limit import PodLimit
    from .parking import ParkedMemory
    from .pod_worker import PodWorker
    from .share import ShareUse


class Mode(StrEnum):
    """The mode of enforcement: by the kernel of the operating system, or soft, without it."""

    ENFORCED = "enforced"
    SOFT = "soft"


class GpuState(StrEnum):
    """The state of one GPU, seen from the pod."""

    ATTACHING = "attaching"
    ATTACHED = "attached"
    DRAINING = "draining"
    PARKED = "parked"
    RETURNING = "returning"
    """It was parked, and a program needs it."""
    UNHEALTHY = "unhealthy"


_WRITTEN = tuple(state for state in GpuState if state not in (GpuState.PARKED, GpuState.RETURNING))


class GpuUser(NamedTuple):
    """A process that has the GPU open, and its notebook if it belongs to one."""

    pid: int
    command: str
    foreign: bool = False
    kernel: str | None = None
    """Kernel id."""
    notebook: str | None = None
    """Path of the notebook (or console) that the kernel belongs to."""
    label: str | None = None
    """The shortest end of that path that is unique on this server."""

    @property
    def name(self) -> str:
        """Name to use in a sentence."""
        if self.notebook:
            return self.label or self.notebook.rpartition("/")[2]
        return f"{self.command} (process {self.pid})" if self.pid else self.command

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "pid": self.pid,
            "command": strict.printable(self.command, 256),
            "foreign": self.foreign,
            "kernel": self.kernel,
            "notebook": strict.printable(self.notebook, 4096) if self.notebook else None,
            **({"label": strict.printable(self.label, 4096)} if self.label else {}),
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "user") -> GpuUser:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            pid=strict.required(body, "pid", strict.integer(0, 2**31 - 1)),
            command=strict.required(body, "command", read_command),
            foreign=strict.required(body, "foreign", strict.boolean),
            kernel=strict.optional(body, "kernel", strict.text(256)),
            notebook=strict.optional(body, "notebook", strict.label(4096)),
            label=strict.optional(body, "label", strict.label(4096)),
        )


class PodGpu(NamedTuple):
    """A GPU of the pod: one card in the panel."""

    gpu: Gpu
    milli: int
    """0: it is a guest there, which runs while the pods that have this GPU do nothing."""
    state: GpuState
    users: tuple[GpuUser, ...] = ()
    strangers: tuple[Stranger, ...] = ()
    """Processes that use it without having been given it."""
    idle_since: int | None = None
    """Seconds since 1970 at which it was first told that it rests: open, and nothing runs on it; None: it does not."""
    keeps: int = 0
    """Bytes of a whole GPU that is lent while it rests: the rest is a guest's; 0: it is not lent."""
    parked: ParkedMemory | None = None
    """The part of it in host memory: always there where the state is parked or returning."""

    @property
    def exclusive(self) -> bool:
        """Whether no other program uses it, as far as is known."""
        return self.milli == MILLI_PER_GPU and not self.strangers and not self.keeps

    def to_json(self) -> dict[str, Any]:
        """Return the inventory fields with ``milli``, ``state`` and ``users``, and what else is known.

        For a reader that knows nothing of parking, a GPU that is parked or comes back is one that is not there yet.
        """
        away = self.state in (GpuState.PARKED, GpuState.RETURNING)
        return {
            **self.gpu.to_json(),
            "milli": max(1, self.milli),
            **({} if self.milli else {"guest": True}),
            "state": GpuState.ATTACHING if away else self.state,
            "users": [user.to_json() for user in self.users],
            **({"strangers": [one.to_json() for one in self.strangers]} if self.strangers else {}),
            **({} if self.idle_since is None else {"idleSince": self.idle_since}),
            **({"keeps": self.keeps} if self.keeps else {}),
            **({"parked": self.parked.to_json()} if self.parked else {}),
            **({"returning": True} if self.state is GpuState.RETURNING else {}),
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "gpu") -> PodGpu:
        """Read and check the JSON; raises `FieldError`."""
        body = dict(strict.an_object(value, key))
        names = ("milli", "guest", "state", "users", "strangers", "idleSince", "keeps", "parked", "returning")
        own = {name: body.pop(name, None) for name in names}
        milli = strict.required(own, "milli", strict.integer(1, 1000))
        state = GpuState(strict.required(own, "state", strict.one_of(*_WRITTEN)))
        parked = strict.optional(own, "parked", _read_parked)
        if parked and state is GpuState.ATTACHING:
            returning = strict.optional(own, "returning", strict.boolean)
            state = GpuState.RETURNING if returning else GpuState.PARKED
        return cls(
            gpu=Gpu.from_json(body, key),
            milli=0 if strict.optional(own, "guest", strict.boolean) else milli,
            state=state,
            users=strict.optional(own, "users", strict.list_of(GpuUser.from_json, 1024)) or (),
            strangers=strict.optional(own, "strangers", strict.list_of(Stranger.from_json, MAX_STRANGERS)) or (),
            idle_since=strict.optional(own, "idleSince", strict.read_time),
            keeps=strict.optional(own, "keeps", strict.integer(0, strict.MAX_GENERATION)) or 0,
            parked=parked,
        )


def _read_parked(value: Any, key: str) -> ParkedMemory:
    from .parking import ParkedMemory

    return ParkedMemory.from_json(value, key)


LIMIT_LOWERED = "LimitLowered"
"""Type of the condition of a server that has more than its user's limit allows, until that is taken back."""


class Condition(NamedTuple):
    """Something about this server that its user should know: ``type`` for programs, ``message`` for people."""

    type: str
    message: str

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"type": self.type, "message": strict.printable(self.message, 1024)}

    @classmethod
    def from_json(cls, value: Any, key: str = "condition") -> Condition:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(strict.required(body, "type", strict.text(64)), strict.required(body, "message", strict.label(1024)))


@dataclass(frozen=True, slots=True)
class View:
    """The state of one pod's GPUs at one moment."""

    instance: str
    """Changes when the server restarts; ``version`` counts within it."""
    version: int
    mode: Mode
    simulated: bool
    backend: str
    total: int
    """Milli of all GPUs that this pod could ever have, with those of other nodes."""
    limit: int
    """Milli that this server may have now, at most ``total``: by its own limit, and by its user's (`user_limit`)."""
    steps: tuple[int, ...]
    """Amounts the slider offers, ascending, 0 first."""
    requested: Requested | None = None
    allocated: Allocated | None = None
    attached: Attached | None = None
    gpus: tuple[PodGpu, ...] = ()
    conditions: tuple[Condition, ...] = ()
    revision: int = 0
    """Counts, within the instance, changes of the words alone: of two views of one version the higher is newer."""
    workers: tuple[PodWorker, ...] = ()
    """The pod's workers on other nodes, whose GPUs are not among ``gpus``."""
    elsewhere: int | None = None
    """The part of ``total`` that is on other nodes; 0: the wish says ``local``; ``None``: no other node serves it."""
    kinds: tuple[GpuKind, ...] = ()
    """The kinds of GPUs of the pod's own node."""
    lendable: bool | None = None
    """Whether its whole GPUs are lent while they rest, where its requests say that; ``None``: they do not."""
    kinds_elsewhere: tuple[GpuKind, ...] = ()
    """The kinds of the GPUs of other nodes that the pod could have."""

    @property
    def all_kinds(self) -> tuple[GpuKind, ...]:
        """All kinds of GPUs among which a request can choose, each once, those of the own node first."""
        return tuple(dict.fromkeys((*self.kinds, *self.kinds_elsewhere)))

    @property
    def status(self) -> Status:
        """The status, computed and never stored."""
        return status(self.requested, self.allocated, self.attached, self.workers)

    @property
    def together(self) -> int:
        """Milli that one process can use: the most that is attached on one node, and works."""
        broken = sum(item.milli for item in self.gpus if item.state is GpuState.UNHEALTHY)
        return max(0, self.here - broken, *(worker.usable - total(worker.unhealthy) for worker in self.workers))

    @property
    def here(self) -> int:
        """Milli that is attached on the pod's own node."""
        return total(self.attached.shares) if self.attached else 0

    @property
    def park_at(self) -> int | None:
        """Seconds since 1970 at which the next park is announced; ``None``: none is."""
        times = [order.at for order in self.allocated.park if order.at is not None] if self.allocated else []
        return min(times, default=None)

    @property
    def user_limit(self) -> PodLimit | None:
        """The limit of the server's user, with its source; ``None`` where no limits are in force."""
        return self.allocated.limit if self.allocated else None

    @property
    def generation(self) -> int:
        """Generation of the current wish; 0 before the first."""
        return self.requested.generation if self.requested else 0

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, with computed fields such as ``phase`` and ``amounts`` for clients with no model."""
        now, of_user = self.status, self.user_limit
        return {
            "instance": self.instance,
            "version": self.version,
            "mode": self.mode,
            "simulated": self.simulated,
            "backend": self.backend,
            "total": self.total,
            "limit": self.limit,
            "steps": list(self.steps),
            "phase": now.phase,
            "reason": now.reason,
            "settled": now.settled,
            "amounts": {
                "requested": now.requested,
                "allocated": now.allocated,
                "attached": now.attached,
                "draining": now.draining,
                **({"parked": now.parked} if now.parked else {}),
            },
            "requested": self.requested.to_json() if self.requested else None,
            "allocated": self.allocated.to_json() if self.allocated else None,
            "attached": self.attached.to_json() if self.attached else None,
            "gpus": [gpu.to_json() for gpu in self.gpus],
            "conditions": [condition.to_json() for condition in self.conditions],
            **({"limit_source": of_user.source.sentence()} if of_user else {}),
            **({"revision": self.revision} if self.revision else {}),
            **({"workers": [worker.to_json() for worker in self.workers]} if self.workers else {}),
            **({} if self.elsewhere is None else {"elsewhere": self.elsewhere}),
            **({"kinds": [kind.to_json() for kind in self.kinds]} if self.kinds else {}),
            **({} if self.lendable is None else {"lendable": self.lendable}),
            **({"kindsElsewhere": [kind.to_json() for kind in self.kinds_elsewhere]} if self.kinds_elsewhere else {}),
            **({} if self.park_at is None else {"parkAt": self.park_at}),
        }

    @classmethod
    def from_json(cls, value: Any) -> View:
        """Read and check the JSON; raises `FieldError`. Computed fields are computed again, not read."""
        body = strict.an_object(value, "view")
        milli = strict.integer(0, MAX_MILLI)
        return cls(
            instance=strict.required(body, "instance", strict.text(64)),
            version=strict.required(body, "version", strict.integer(0, strict.MAX_GENERATION)),
            mode=Mode(strict.required(body, "mode", strict.one_of(*Mode))),
            simulated=strict.required(body, "simulated", strict.boolean),
            backend=strict.required(body, "backend", strict.text(32)),
            total=strict.required(body, "total", milli),
            limit=strict.required(body, "limit", milli),
            steps=strict.required(body, "steps", strict.list_of(milli, 2048)),
            requested=strict.optional(body, "requested", lambda v, _: Requested.from_json(v)),
            allocated=strict.optional(body, "allocated", lambda v, _: Allocated.from_json(v)),
            attached=strict.optional(body, "attached", lambda v, _: Attached.from_json(v)),
            gpus=strict.required(body, "gpus", strict.list_of(PodGpu.from_json, 1024)),
            conditions=strict.required(body, "conditions", strict.list_of(Condition.from_json, 64)),
            revision=strict.optional(body, "revision", strict.integer(0, strict.MAX_GENERATION)) or 0,
            workers=strict.optional(body, "workers", _read_workers) or (),
            elsewhere=strict.optional(body, "elsewhere", milli),
            kinds=strict.optional(body, "kinds", _read_kinds) or (),
            lendable=strict.optional(body, "lendable", strict.boolean),
            kinds_elsewhere=strict.optional(body, "kindsElsewhere", _read_kinds) or (),
        )


def _read_workers(value: Any, key: str) -> tuple[PodWorker, ...]:
    from .pod_worker import read_workers

    return read_workers(value, key)


def _read_kinds(value: Any, key: str) -> tuple[GpuKind, ...]:
    from .gpu_kind import read_gpu_kinds

    return read_gpu_kinds(value, key)


class GpuLoad(NamedTuple):
    """The load of one GPU at one moment; ``None`` where the device does not report it."""

    utilisation: float | None
    """Per cent, 0–100."""
    memory: int | None
    """Bytes in use."""
    temperature: int | None = None
    """°C."""
    power: float | None = None
    """Watts."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; temperature and power are left out where they are not known."""
        body: dict[str, Any] = {"utilisation": self.utilisation, "memory": self.memory}
        more = {"temperature": self.temperature, "power": self.power}
        return {**body, **strict.without_none(more)}

    @classmethod
    def from_json(cls, value: Any, key: str = "load") -> GpuLoad:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            utilisation=strict.optional(body, "utilisation", read_number(100.0)),
            memory=strict.optional(body, "memory", strict.integer(0, strict.MAX_GENERATION)),
            temperature=strict.optional(body, "temperature", read_celsius),
            power=strict.optional(body, "power", read_watts),
        )


class Sample(NamedTuple):
    """The load of the pod's GPUs at one moment, and the totals of its time shares so far."""

    time: float
    """Seconds since the epoch on the server's clock."""
    loads: Mapping[str, GpuLoad]
    """By uuid."""
    shares: Mapping[str, ShareUse] = MappingProxyType({})
    """Use of its time shares, by uuid of the GPU."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"time", "gpus": {uuid: {"utilisation", "memory"}}, "shares"?: {uuid: {…}}}``."""
        body = {"time": self.time, "gpus": {uuid: load.to_json() for uuid, load in self.loads.items()}}
        return {**body, "shares": {u: s.to_json() for u, s in self.shares.items()}} if self.shares else body

    @classmethod
    def from_json(cls, value: Any) -> Sample:
        """Read and check the JSON; raises `FieldError`."""
        from .share import read_shares

        body = strict.an_object(value, "sample")
        return cls(
            time=strict.required(body, "time", read_number(float(strict.MAX_GENERATION))),
            loads=strict.required(body, "gpus", _read_loads),
            shares=strict.optional(body, "shares", read_shares) or {},
        )


def _read_loads(value: Any, key: str) -> Mapping[str, GpuLoad]:
    return {uuid: GpuLoad.from_json(item, key) for uuid, item in strict.an_object(value, key).items()}


def read_number(most: float) -> Callable[[Any, str], float]:
    """Make a reader of numbers from 0 to ``most``."""

    def read(value: Any, key: str) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= most:
            raise strict.FieldError(f"{key!r} must be a number from 0 to {most:.0f}.", key)
        return float(value)

    return read


read_celsius = strict.integer(0, 1000)
read_watts = read_number(100_000.0)


def steps(limit: int, fractions: tuple[int, ...], kinds: Sequence[GpuKind] = ()) -> tuple[int, ...]:
    """List the amounts to offer: 0, the fractions, every whole GPU, and the limit itself.

    Where no part of any of ``kinds`` can be had, these are whole GPUs alone; none of them: the kinds are not known.
    """
    whole = range(0, limit + 1, MILLI_PER_GPU)
    if kinds and not any(kind.has_shares for kind in kinds):
        return tuple(whole)
    return tuple(sorted({0, *whole, *(f for f in fractions if f <= limit), limit}))
