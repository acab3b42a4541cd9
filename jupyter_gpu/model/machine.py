"""All GPUs of a machine: which server has which part of them, and which wait for more.

`overview` decides what may be shown. ``docs/openapi.yaml`` describes the JSON.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from . import strict
from .gpu import MAX_GPUS
from .quantity import MAX_MILLI, MILLI_PER_GPU
from .view import GpuLoad

MAX_SERVERS = 4096
UNKNOWN = GpuLoad(None, None)
_read_milli = strict.integer(0, MAX_MILLI)
_read_number = strict.integer(0, MAX_SERVERS)


class Shown(StrEnum):
    """The detail in which other servers are shown."""

    EVERYBODY = "everybody"
    """Each, by its user's name."""
    OWN = "own"
    """Only those of the same user; the others in sum."""
    TOTALS = "totals"
    """Nothing but sums."""


@dataclass(frozen=True, slots=True)
class Server:
    """A server as it is shown."""

    user: str
    here: bool = False
    folder: str = ""
    """Only of servers of the same user; may be empty."""
    port: int | None = None
    ended: bool = False
    has: int = 0
    """Milli."""
    owed: int = 0
    """Milli that it waits for."""
    position: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, without empty fields."""
        body = {
            "user": strict.printable(self.user, 64),
            "here": self.here or None,
            "folder": strict.printable(self.folder, 512) if self.folder else None,
            "port": self.port,
            "ended": self.ended or None,
            "has": self.has,
            "owed": self.owed or None,
            "position": self.position,
        }
        return strict.without_none(body)

    @classmethod
    def from_json(cls, value: Any, key: str = "server") -> Server:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            user=strict.required(body, "user", strict.label(64)),
            here=strict.optional(body, "here", strict.boolean) or False,
            folder=strict.optional(body, "folder", strict.label(512)) or "",
            port=strict.optional(body, "port", strict.integer(1, 65535)),
            ended=strict.optional(body, "ended", strict.boolean) or False,
            has=strict.required(body, "has", _read_milli),
            owed=strict.optional(body, "owed", _read_milli) or 0,
            position=strict.optional(body, "position", strict.integer(1, 10**6)),
        )


@dataclass(frozen=True, slots=True)
class GpuPart:
    """The part of a GPU that a server has, or that servers without a name have together."""

    milli: int
    server: int | None = None
    """Index in the list of servers; ``None``: servers that are not named."""
    draining: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return ``{"milli", "server"?, "draining"?}``."""
        return strict.without_none({"milli": self.milli, "server": self.server, "draining": self.draining or None})

    @classmethod
    def from_json(cls, value: Any, key: str = "part") -> GpuPart:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            milli=strict.required(body, "milli", strict.integer(1, MILLI_PER_GPU)),
            server=strict.optional(body, "server", _read_number),
            draining=strict.optional(body, "draining", strict.boolean) or False,
        )


@dataclass(frozen=True, slots=True)
class MachineGpu:
    """One GPU, and the parts of it that servers have."""

    uuid: str
    index: int
    model: str
    memory: int
    """Bytes."""
    healthy: bool = True
    load: GpuLoad = UNKNOWN
    parts: tuple[GpuPart, ...] = ()

    @property
    def free(self) -> int:
        """Milli that no server has."""
        return MILLI_PER_GPU - sum(part.milli for part in self.parts)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "uuid": self.uuid,
            "index": self.index,
            "model": self.model,
            "memory": self.memory,
            "healthy": self.healthy,
            "load": self.load.to_json(),
            "parts": [part.to_json() for part in self.parts],
            "free": self.free,
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "gpu") -> MachineGpu:
        """Read and check the JSON; raises `FieldError`. ``free`` is computed again."""
        body = strict.an_object(value, key)
        parts = strict.required(body, "parts", strict.list_of(GpuPart.from_json, MAX_SERVERS))
        if sum(part.milli for part in parts) > MILLI_PER_GPU:
            raise strict.FieldError("'parts' are more than the GPU.", "parts")
        return cls(
            uuid=strict.required(body, "uuid", strict.text(96)),
            index=strict.required(body, "index", strict.integer(0, 4095)),
            model=strict.required(body, "model", strict.text(128)),
            memory=strict.required(body, "memory", strict.integer(0, strict.MAX_GENERATION)),
            healthy=strict.required(body, "healthy", strict.boolean),
            load=strict.required(body, "load", GpuLoad.from_json),
            parts=parts,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums, which name no server."""

    gpus: int
    free: int
    """Milli of healthy GPUs that no server has."""
    used: int
    """Milli that a server has, or has not closed."""
    waiting: int
    """Number of servers that wait for GPUs."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"gpus", "free", "used", "waiting"}``."""
        return {"gpus": self.gpus, "free": self.free, "used": self.used, "waiting": self.waiting}

    @classmethod
    def from_json(cls, value: Any, key: str = "totals") -> Totals:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            gpus=strict.required(body, "gpus", strict.integer(0, MAX_GPUS)),
            free=strict.required(body, "free", _read_milli),
            used=strict.required(body, "used", _read_milli),
            waiting=strict.required(body, "waiting", strict.integer(0, 10**6)),
        )


@dataclass(frozen=True, slots=True)
class Machine:
    """The state of the machine, or of the node, as far as a server's user may know it."""

    shown: Shown
    totals: Totals
    gpus: tuple[MachineGpu, ...] = ()
    """By index; none where only sums are shown."""
    servers: tuple[Server, ...] = ()
    """The server that answers first, then those of its user, then the others; each kind in the order of the line."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "shown": self.shown.value,
            "totals": self.totals.to_json(),
            "gpus": [gpu.to_json() for gpu in self.gpus],
            "servers": [server.to_json() for server in self.servers],
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "machine") -> Machine:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        gpus = strict.required(body, "gpus", strict.list_of(MachineGpu.from_json, MAX_GPUS))
        servers = strict.required(body, "servers", strict.list_of(Server.from_json, MAX_SERVERS))
        if any(part.server is not None and part.server >= len(servers) for gpu in gpus for part in gpu.parts):
            raise strict.FieldError("'server' must be one of 'servers'.", "server")
        return cls(
            shown=Shown(strict.required(body, "shown", strict.one_of(*Shown))),
            totals=strict.required(body, "totals", Totals.from_json),
            gpus=gpus,
            servers=servers,
        )
