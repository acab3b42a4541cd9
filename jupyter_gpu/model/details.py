"""Details of a GPU beyond its load: limits, rates, and the memory of each process.

``None`` is a value that the device does not report; it is left out of the JSON and is never 0. ``docs/openapi.yaml``
describes the JSON.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from . import strict
from .gpu import Holder, read_command
from .view import read_celsius, read_watts

MAX_PROCESSES = 1024
MAX_BYTES = strict.MAX_GENERATION
_read_bytes = strict.integer(0, MAX_BYTES)


@dataclass(frozen=True, slots=True)
class LinkRates:
    """Bytes a second into the GPU and out of it."""

    received: int
    sent: int

    def to_json(self) -> dict[str, Any]:
        """Return ``{"received", "sent"}``."""
        return {"received": self.received, "sent": self.sent}

    @classmethod
    def from_json(cls, value: Any, key: str = "rates") -> LinkRates:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(strict.required(body, "received", _read_bytes), strict.required(body, "sent", _read_bytes))


@dataclass(frozen=True, slots=True)
class ProcessUse:
    """A process on a GPU as the driver names it."""

    pid: int
    """Pid in the namespace of the program that asked the driver; 0 where it is not known."""
    memory: int | None = None
    """Bytes of GPU memory."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"pid", "memory"?}``."""
        return strict.without_none({"pid": self.pid, "memory": self.memory})

    @classmethod
    def from_json(cls, value: Any, key: str = "process") -> ProcessUse:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        pid = strict.required(body, "pid", strict.integer(0, 2**31 - 1))
        return cls(pid, strict.optional(body, "memory", _read_bytes))


@dataclass(frozen=True, slots=True)
class Reading:
    """The driver's answer about one GPU, before its processes are matched with pods."""

    slowdown: int | None = None
    """Temperature in °C at which the GPU makes itself slower."""
    power_limit: float | None = None
    """Watts."""
    pcie: LinkRates | None = None
    nvlink: LinkRates | None = None
    processes: tuple[ProcessUse, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; unknown fields are left out."""
        processes = None if self.processes is None else [process.to_json() for process in self.processes]
        return {**_figures(self), **strict.without_none({"processes": processes})}

    @classmethod
    def from_json(cls, value: Any, key: str = "reading") -> Reading:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        read = strict.list_of(ProcessUse.from_json, MAX_PROCESSES)
        return cls(**_read_figures(body), processes=strict.optional(body, "processes", read))


@dataclass(frozen=True, slots=True)
class NamedProcessUse:
    """A process that the user may see, and its GPU memory."""

    pid: int
    """Pid in the pod; 0 where it has none there."""
    command: str
    memory: int | None = None
    """Bytes of GPU memory."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"pid", "command", "memory"?}``."""
        return strict.without_none(
            {"pid": self.pid, "command": strict.printable(self.command, 256), "memory": self.memory}
        )

    @classmethod
    def from_json(cls, value: Any, key: str = "process") -> NamedProcessUse:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            pid=strict.required(body, "pid", strict.integer(0, 2**31 - 1)),
            command=strict.required(body, "command", read_command),
            memory=strict.optional(body, "memory", _read_bytes),
        )


@dataclass(frozen=True, slots=True)
class OtherProcesses:
    """Processes that the user may not see: their number and their memory together."""

    processes: int
    memory: int | None = None
    """Bytes; ``None`` where one of them is not known."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"processes", "memory"?}``."""
        return strict.without_none({"processes": self.processes, "memory": self.memory})

    @classmethod
    def from_json(cls, value: Any, key: str = "others") -> OtherProcesses:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        number = strict.required(body, "processes", strict.integer(1, MAX_PROCESSES))
        return cls(number, strict.optional(body, "memory", _read_bytes))


@dataclass(frozen=True, slots=True)
class GpuDetails:
    """The details of one GPU of a pod, as its user sees them."""

    slowdown: int | None = None
    """Temperature in °C at which the GPU makes itself slower."""
    power_limit: float | None = None
    """Watts."""
    pcie: LinkRates | None = None
    nvlink: LinkRates | None = None
    processes: tuple[NamedProcessUse, ...] | None = None
    """Processes of the pod, and strangers that have its GPU open."""
    others: OtherProcesses | None = None
    """All others on the GPU: those of the pods that share it, or of the machine."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; unknown fields are left out."""
        processes = None if self.processes is None else [process.to_json() for process in self.processes]
        others = self.others.to_json() if self.others else None
        return {**_figures(self), **strict.without_none({"processes": processes, "others": others})}

    @classmethod
    def from_json(cls, value: Any, key: str = "details") -> GpuDetails:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        read = strict.list_of(NamedProcessUse.from_json, MAX_PROCESSES)
        return cls(
            **_read_figures(body),
            processes=strict.optional(body, "processes", read),
            others=strict.optional(body, "others", OtherProcesses.from_json),
        )


@dataclass(frozen=True, slots=True)
class Details:
    """The details of all GPUs of a pod at one moment."""

    time: float
    """Seconds since the epoch on the server's clock."""
    gpus: Mapping[str, GpuDetails] = field(default_factory=dict)
    """By uuid; a GPU of which nothing is known is left out."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"time", "gpus": {uuid: {…}}}``."""
        return {"time": self.time, "gpus": {uuid: found.to_json() for uuid, found in self.gpus.items()}}


def read_all(value: Any, key: str = "details") -> dict[str, GpuDetails]:
    """Read the details by uuid, checked; raises `FieldError`."""
    return {uuid: GpuDetails.from_json(item, uuid) for uuid, item in strict.an_object(value, key).items()}


def named(reading: Reading, known: Mapping[int, Holder]) -> GpuDetails:
    """Return the details that a pod's user may see: of the processes in ``reading``, those that are ``known``, by pid.

    The others are only counted: the user of a share learns nothing about the programs of other pods.
    """
    processes = others = None
    if reading.processes is not None:
        own = (use for use in reading.processes if use.pid in known)
        processes = tuple(NamedProcessUse(known[use.pid].pid, known[use.pid].command, use.memory) for use in own)
        others = _sum(use for use in reading.processes if use.pid not in known)
    return GpuDetails(reading.slowdown, reading.power_limit, reading.pcie, reading.nvlink, processes, others)


def _sum(uses: Iterable[ProcessUse]) -> OtherProcesses | None:
    memories = [use.memory for use in uses]
    if not memories:
        return None
    found = [memory for memory in memories if memory is not None]
    in_sum = min(sum(found), MAX_BYTES) if len(found) == len(memories) else None
    return OtherProcesses(min(len(memories), MAX_PROCESSES), in_sum)


def _figures(of: Reading | GpuDetails) -> dict[str, Any]:
    return strict.without_none(
        {
            "slowdown": of.slowdown,
            "power_limit": of.power_limit,
            "pcie": of.pcie.to_json() if of.pcie else None,
            "nvlink": of.nvlink.to_json() if of.nvlink else None,
        }
    )


def _read_figures(body: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "slowdown": strict.optional(body, "slowdown", read_celsius),
        "power_limit": strict.optional(body, "power_limit", read_watts),
        "pcie": strict.optional(body, "pcie", LinkRates.from_json),
        "nvlink": strict.optional(body, "nvlink", LinkRates.from_json),
    }
