"""A GPU: its identity in an inventory, and a pod's share of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from . import strict
from .quantity import MAX_BYTES, MAX_MILLI, MILLI_PER_GPU

MAX_GPUS = 256
"""GPUs in one inventory, and shares in one annotation."""
NVIDIA = "nvidia"
"""The vendor of a GPU that names none, and of simulated GPUs. Only its GPUs have time shares: the gate is CUDA's."""
AMD = "amd"
MAX_COMPUTE = 10**9
"""Billions of operations a second: what is above makes no sense."""

read_uuid = strict.text(96)
MAX_HEALTH = 512
"""Most letters of the reason for which a GPU is not healthy."""
read_health = strict.label(MAX_HEALTH)
NO_REASON = "The node gives no reason."
"""Words for a GPU that is not healthy where nothing says why."""
read_command = strict.label(256)
read_vendor = strict.text(32)
read_minor = strict.integer(0, 2**20 - 1)  # Linux keeps 12 bits of major and 20 of minor
read_major = strict.integer(0, 2**12 - 1)


class Device(NamedTuple):
    """Numbers of a character device, as device rules name it."""

    major: int
    minor: int

    def __str__(self) -> str:
        return f"{self.major}:{self.minor}"

    @classmethod
    def parse(cls, value: Any, key: str = "device") -> Device:
        """Parse ``"195:0"``; raises `FieldError`."""
        if isinstance(value, str):
            major, colon, minor = value.partition(":")
            if colon and _is_number(major) and _is_number(minor):
                return cls(read_major(int(major), key), read_minor(int(minor), key))
        raise strict.FieldError(f"{key!r} must be the numbers of a device, such as '195:0'.", key)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) <= 8


@dataclass(frozen=True, slots=True)
class Gpu:
    """One GPU of a node's inventory."""

    uuid: str
    index: int
    model: str
    memory: int
    """Bytes."""
    device: Device | None = None
    """``None`` where there is no character device of its own: a GPU simulated without root."""
    path: str = ""
    """Its device node as programs open it."""
    healthy: bool = True
    health: str = ""
    """Reason it is not healthy, in plain words."""
    numa: int | None = None
    island: str | None = None
    """GPUs with the same word are joined by NVLink."""
    switch: str | None = None
    """GPUs with the same word share a PCIe switch."""
    simulated: bool = False
    vendor: str = NVIDIA
    """Its maker, in lower case."""
    slow: bool = False
    """Whether it is given last: its driver slows it down, or it is about to be drained."""
    fabric: str | None = None
    """GPUs with the same word, also of other nodes, are joined by one NVLink fabric."""
    gate: bool = False
    """Whether its node plugin enforces the memory that a share has in the books (`GpuShare.memory`)."""
    compute: int | None = None
    """Billions of operations a second that it can do with numbers of 32 bits; ``None``: not known."""
    extra: Mapping[str, Any] = field(default_factory=dict, hash=False)
    """Fields of a newer version, kept as they are."""

    _KNOWN = (
        *("uuid", "index", "model", "memory", "device", "path", "healthy", "health"),
        *("numa", "island", "switch", "fabric", "simulated", "vendor", "slow", "gate", "compute"),
    )

    def to_json(self) -> dict[str, Any]:
        """Return the item of the ``inventory`` annotation; fields at their default are left out."""
        body: dict[str, Any] = {
            "uuid": self.uuid,
            "index": self.index,
            "model": self.model,
            "memory": self.memory,
            "healthy": self.healthy,
        }
        optional = {
            "device": str(self.device) if self.device else None,
            "path": self.path or None,
            "health": strict.printable(self.health, MAX_HEALTH) if self.health else None,
            "numa": self.numa,
            "island": self.island,
            "switch": self.switch,
            "fabric": self.fabric,
            "simulated": self.simulated or None,
            "vendor": None if self.vendor == NVIDIA else self.vendor,
            "slow": self.slow or None,
            "gate": self.gate or None,
            "compute": self.compute,
        }
        return {**body, **strict.without_none(optional), **self.extra}

    @classmethod
    def from_json(cls, value: Any, key: str = "gpu") -> Gpu:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            uuid=strict.required(body, "uuid", read_uuid),
            index=strict.required(body, "index", strict.integer(0, 4095)),
            model=strict.required(body, "model", strict.text(128)),
            memory=strict.required(body, "memory", strict.integer(0, 2**53 - 1)),
            device=strict.optional(body, "device", Device.parse),
            path=strict.optional(body, "path", strict.text(512)) or "",
            healthy=strict.required(body, "healthy", strict.boolean),
            health=strict.optional(body, "health", read_health) or "",
            numa=strict.optional(body, "numa", strict.integer(0, 1023)),
            island=strict.optional(body, "island", strict.text(96)),
            switch=strict.optional(body, "switch", strict.text(96)),
            fabric=strict.optional(body, "fabric", strict.text(96)),
            simulated=strict.optional(body, "simulated", strict.boolean) or False,
            vendor=strict.optional(body, "vendor", read_vendor) or NVIDIA,
            slow=strict.optional(body, "slow", strict.boolean) or False,
            gate=strict.optional(body, "gate", strict.boolean) or False,
            compute=strict.optional(body, "compute", strict.integer(1, MAX_COMPUTE)),
            extra=strict.unknown(body, cls._KNOWN),
        )


class GpuShare(NamedTuple):
    """``milli`` thousandths of the GPU ``uuid``: 1000 is the whole GPU, exclusive; less is a time share.

    0 with ``memory`` is a *guest*: it has that memory, and time that the other shares leave unused. 1000 with
    ``memory`` is a *lendable* whole GPU: all of the time, and that memory; the rest of it guests may have.
    """

    uuid: str
    milli: int
    memory: int = 0
    """Bytes that it has in the books, where they are not simply its part of the GPU's; 0: its part."""

    @property
    def exclusive(self) -> bool:
        """Whether no other pod may use this GPU meanwhile."""
        return self.milli == MILLI_PER_GPU and not self.memory

    @property
    def lendable(self) -> bool:
        """Whether it has all of the time, and a guest may have what it leaves."""
        return self.milli == MILLI_PER_GPU and self.memory > 0

    @property
    def guest(self) -> bool:
        """Whether no time of the GPU is guaranteed to it: it runs while the other shares do nothing."""
        return not self.milli and self.memory > 0

    @property
    def kind(self) -> tuple[str, bool]:
        """The GPU, and whether the share records its memory: of two of one kind `joined` is exact."""
        return self.uuid, self.memory > 0

    def is_within(self, other: GpuShare | None) -> bool:
        """Tell whether ``other``, on the same GPU, is at least as much; False where only the GPU's memory tells."""
        if other is None or other.milli < self.milli:
            return False
        return other.exclusive or self.memory == other.memory or 0 < self.memory < other.memory

    def joined(self, other: GpuShare) -> GpuShare:
        """Return the most of two shares of one GPU, each amount by itself; all of it where only its memory tells."""
        milli = max(self.milli, other.milli)
        part = any(share.milli and not share.memory for share in (self, other))
        return GpuShare(self.uuid, milli, 0 if part and milli == MILLI_PER_GPU else max(self.memory, other.memory))

    def to_json(self) -> dict[str, Any]:
        """Return ``{"uuid", "milli", "memory"?, "guest"?, "lendable"?}``.

        A guest has 1 milli there: so an older reader finds more than a whole GPU, and gives or opens nothing. For it,
        a lendable GPU is a whole one.
        """
        body: dict[str, Any] = {"uuid": self.uuid, "milli": max(1, self.milli)}
        if self.memory:
            body["memory"] = self.memory
        if self.lendable:
            body["lendable"] = True
        return {**body, "guest": True} if self.guest else body

    @classmethod
    def from_json(cls, value: Any, key: str = "share") -> GpuShare:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        share = cls(
            uuid=strict.required(body, "uuid", read_uuid),
            milli=strict.required(body, "milli", strict.integer(1, MILLI_PER_GPU)),
            memory=strict.optional(body, "memory", strict.integer(0, MAX_BYTES)) or 0,
        )
        guest, lendable = (strict.optional(body, name, strict.boolean) for name in ("guest", "lendable"))
        if lendable and not (share.lendable and not guest):
            problem = f"A lendable share in {key!r} must be a whole GPU, and name its 'memory'."
            raise strict.FieldError(problem, "lendable")
        if not guest:
            return share._replace(memory=0) if share.lendable and not lendable else share
        if not share.memory:
            raise strict.FieldError(f"A guest in {key!r} must name its 'memory'.", "memory")
        return share._replace(milli=0)


class Holder(NamedTuple):
    """A process that has a GPU's device open."""

    pid: int
    """Pid in the namespace of the pod; 0 where it has none there."""
    command: str
    foreign: bool = False
    """Whether it runs outside the pod: a process can pass an open descriptor to another over a socket."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"pid", "command", "foreign"?}``."""
        command = strict.printable(self.command, 256)
        return {"pid": self.pid, "command": command, **({"foreign": True} if self.foreign else {})}

    @classmethod
    def from_json(cls, value: Any, key: str = "holder") -> Holder:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            pid=strict.required(body, "pid", strict.integer(0, 2**31 - 1)),
            command=strict.required(body, "command", read_command),
            foreign=strict.optional(body, "foreign", strict.boolean) or False,
        )


class DrainingShare(NamedTuple):
    """A revoked share whose device is not proven closed; no pod owns it. ``holders`` is a sample, not the proof."""

    uuid: str
    milli: int
    holders: tuple[Holder, ...] = ()
    memory: int = 0
    """Bytes that it still has in the books, as in `GpuShare`."""

    @property
    def share(self) -> GpuShare:
        """The share that is on its way out."""
        return GpuShare(self.uuid, self.milli, self.memory)

    def to_json(self) -> dict[str, Any]:
        """Return ``{"uuid", "milli", "memory"?, "holders"?}``."""
        holders = [holder.to_json() for holder in self.holders]
        return {**self.share.to_json(), **({"holders": holders} if holders else {})}

    @classmethod
    def from_json(cls, value: Any, key: str = "draining") -> DrainingShare:
        """Read and check the JSON; raises `FieldError`."""
        share = GpuShare.from_json(value, key)
        holders = strict.optional(value, "holders", strict.list_of(Holder.from_json, 64)) or ()
        return cls(share.uuid, share.milli, holders, share.memory)


def total(shares: Iterable[GpuShare]) -> int:
    """Return the sum of the shares in milli."""
    return sum(share.milli for share in shares)


def pieces(milli: int, each: int | None = None) -> tuple[int, ...]:
    """Cut an amount into shares, largest first: 1500 → ``(1000, 500)``; each 500 of 1000 → ``(500, 500)``.

    Raises ``ValueError`` if ``each`` does not divide the amount.
    """
    if not 0 <= milli <= MAX_MILLI:
        raise ValueError(f"An amount is 0 to {MAX_MILLI} milli.")
    if each is None:
        whole, rest = divmod(milli, MILLI_PER_GPU)
        return (MILLI_PER_GPU,) * whole + ((rest,) if rest else ())
    if not 0 < each <= MILLI_PER_GPU:
        raise ValueError(f"'each' is 1 to {MILLI_PER_GPU} milli.")
    if milli % each:
        raise ValueError(f"{milli} milli can't be cut into pieces of {each}.")
    return (each,) * (milli // each)
