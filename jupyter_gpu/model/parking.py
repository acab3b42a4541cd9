"""The words of parking on the wire: orders, what is parked, what rests, and what cannot be parked.

A *parked* share is one whose GPU memory was moved to host memory: its device is proven closed, and it holds nothing of
the GPU. It is none of the pod's shares, unless it is *swapped* (``kept``): then the share stays, and only its memory is
free. A *bundle* is the processes and GPUs that are parked together. Times are seconds since 1970; in the records of one
machine they are those of ``CLOCK_BOOTTIME``.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from . import strict
from .gpu import MAX_GPUS, GpuShare, Holder, read_uuid
from .quantity import MAX_BYTES

MAX_PARKED = 2 * MAX_GPUS
"""The most items of ``parked``: several processes can be parked on one GPU after each other."""
_MAX_HOLDERS = 64

_read_bytes = strict.integer(0, MAX_BYTES)
_read_bundle = strict.text(64)
_read_seconds = strict.integer(0, 10**6)


class ParkCause(StrEnum):
    """The reason for an order."""

    USER = "user"
    LINE = "line"
    """Another pod waits for the GPU."""
    IDLE = "idle"
    """It has rested for its grace."""
    LIMIT = "limit"
    """A limit was lowered."""


class Obstacle(StrEnum):
    """The reason that something cannot be parked. A reader takes a word that it does not know as it is."""

    DRIVER = "driver"
    """It is too old."""
    PERSISTENCE = "persistence"
    """The persistence mode of the GPU is off."""
    PARTITION = "partition"
    """MIG, MPS or a vGPU."""
    NO_GATE = "no-gate"
    """A process has the GPU open and no gate in it; ``holders`` names it."""
    BROKEN = "broken"
    """The driver failed to park it once, and can never try again."""
    MANAGED_MEMORY = "managed-memory"
    IMPORTED_MEMORY = "imported-memory"
    """Memory of other processes or GPUs is in its reach: NCCL, CUDA IPC, peers."""
    EXPORTED_MEMORY = "exported-memory"
    """Other processes may use its memory."""
    HOST_MEMORY = "host-memory"
    """``figure``: bytes that are missing."""
    ADDRESS_SPACE = "address-space"
    """A limit of the process is too low."""
    SEVERAL = "several"
    """Several processes or GPUs belong together."""
    IN_USE = "in-use"
    """It is in use again, or work on it did not end in time."""
    HANGS = "hangs"
    """The driver has not answered."""


class ParkOrder(NamedTuple):
    """The demand to park what a pod has on one GPU. The GPU stays among its shares until it is parked."""

    uuid: str
    cause: ParkCause
    at: int | None = None
    """It is announced for this time; ``None``: now."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"uuid", "cause", "at"?}``."""
        return strict.without_none({"uuid": self.uuid, "cause": self.cause.value, "at": self.at})

    @classmethod
    def from_json(cls, value: Any, key: str = "park") -> ParkOrder:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            uuid=strict.required(body, "uuid", read_uuid),
            cause=ParkCause(strict.required(body, "cause", strict.one_of(*ParkCause))),
            at=strict.optional(body, "at", strict.read_time),
        )


class ParkedShare(NamedTuple):
    """The memory that one bundle had on one GPU, in host memory now."""

    uuid: str
    milli: int
    bundle: str
    bytes: int
    """Bytes that it takes of host memory."""
    since: int
    needed: bool = False
    """Whether a program waits for it."""
    back: int | None = None
    """About how many seconds its way back takes; ``None``: not known."""
    kept: bool = False
    """Whether it is swapped: the pod still has its share of the GPU."""
    memory: int = 0
    """Bytes of GPU memory in the books, as in `GpuShare`."""

    @property
    def share(self) -> GpuShare:
        """The share of the GPU that it had, or still has if ``kept``."""
        return GpuShare(self.uuid, self.milli, self.memory)

    def to_json(self) -> dict[str, Any]:
        """Return ``{"uuid", "milli", "memory"?, "bundle", "bytes", "since", "needed"?, "back"?, "kept"?}``."""
        more = {"needed": self.needed or None, "back": self.back, "kept": self.kept or None}
        own = {"bundle": self.bundle, "bytes": self.bytes, "since": self.since}
        return {**self.share.to_json(), **own, **strict.without_none(more)}

    @classmethod
    def from_json(cls, value: Any, key: str = "parked") -> ParkedShare:
        """Read and check the JSON; raises `FieldError`."""
        share = GpuShare.from_json(value, key)
        return cls(
            uuid=share.uuid,
            milli=share.milli,
            bundle=strict.required(value, "bundle", _read_bundle),
            bytes=strict.required(value, "bytes", _read_bytes),
            since=strict.required(value, "since", strict.read_time),
            needed=strict.optional(value, "needed", strict.boolean) or False,
            back=strict.optional(value, "back", _read_seconds),
            kept=strict.optional(value, "kept", strict.boolean) or False,
            memory=share.memory,
        )


class ParkedMemory(NamedTuple):
    """The parked memory of one GPU, for its card: of all bundles together."""

    bytes: int
    since: int
    """The time of the first park."""
    back: int | None = None
    """About how many seconds the way back takes; ``None``: not known."""

    @classmethod
    def of(cls, shares: Sequence[ParkedShare]) -> ParkedMemory:
        """Join what is parked; the way back of several is as long as the longest of them."""
        times = [share.back for share in shares if share.back is not None]
        return cls(sum(share.bytes for share in shares), min(share.since for share in shares), max(times, default=None))

    def to_json(self) -> dict[str, Any]:
        """Return ``{"bytes", "since", "back"?}``."""
        return strict.without_none(self._asdict())

    @classmethod
    def from_json(cls, value: Any, key: str = "parked") -> ParkedMemory:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            bytes=strict.required(body, "bytes", _read_bytes),
            since=strict.required(body, "since", strict.read_time),
            back=strict.optional(body, "back", _read_seconds),
        )


class RestingShare(NamedTuple):
    """An attached GPU that a bundle has open, without work and outside of cells; it can be parked as far as is known.

    A GPU in ``rests`` has done nothing for a minute; one that rests like this can be parked as well.
    """

    uuid: str
    bundle: str
    since: int
    bytes: int
    """Bytes of host memory that parking takes."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"uuid", "bundle", "since", "bytes"}``."""
        return self._asdict()

    @classmethod
    def from_json(cls, value: Any, key: str = "resting") -> RestingShare:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            uuid=strict.required(body, "uuid", read_uuid),
            bundle=strict.required(body, "bundle", _read_bundle),
            since=strict.required(body, "since", strict.read_time),
            bytes=strict.required(body, "bytes", _read_bytes),
        )


class UnparkableShare(NamedTuple):
    """An attached GPU that cannot be parked: a check says no, or the last order failed."""

    uuid: str
    why: str
    """An `Obstacle`, or the word of a newer version."""
    since: int
    figure: int | None = None
    """A number that belongs to the reason."""
    holders: tuple[Holder, ...] = ()
    """The processes that are the reason."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"uuid", "why", "since", "figure"?, "holders"?}``."""
        holders = [holder.to_json() for holder in self.holders] or None
        more = strict.without_none({"figure": self.figure, "holders": holders})
        return {"uuid": self.uuid, "why": str(self.why), "since": self.since, **more}

    @classmethod
    def from_json(cls, value: Any, key: str = "unparkable") -> UnparkableShare:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            uuid=strict.required(body, "uuid", read_uuid),
            why=strict.required(body, "why", strict.text(32)),
            since=strict.required(body, "since", strict.read_time),
            figure=strict.optional(body, "figure", _read_bytes),
            holders=strict.optional(body, "holders", strict.list_of(Holder.from_json, _MAX_HOLDERS)) or (),
        )


read_orders = strict.list_of(ParkOrder.from_json, MAX_GPUS)
read_parked = strict.list_of(ParkedShare.from_json, MAX_PARKED)
read_resting = strict.list_of(RestingShare.from_json, MAX_GPUS)
read_unparkable = strict.list_of(UnparkableShare.from_json, MAX_GPUS)
