"""Kinds of GPUs: the properties by which limits count them and users choose among them. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from . import strict
from .gpu import MAX_GPUS, NVIDIA, Gpu, read_vendor


class GpuKind(NamedTuple):
    """GPUs that are alike."""

    model: str
    memory: int
    """Bytes."""
    vendor: str = NVIDIA
    gate: bool = False
    """Whether a share of it may have other memory than its part."""

    @property
    def has_shares(self) -> bool:
        """Whether parts of such a GPU can be had."""
        return self.vendor == NVIDIA

    def to_json(self) -> dict[str, Any]:
        """Return ``{"model", "memory", "vendor"?, "gate"?}``; fields at their default are left out."""
        vendor = {} if self.vendor == NVIDIA else {"vendor": self.vendor}
        return {"model": self.model, "memory": self.memory, **vendor, **({"gate": True} if self.gate else {})}

    @classmethod
    def from_json(cls, value: Any, key: str = "kind") -> GpuKind:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(
            model=strict.required(body, "model", strict.text(128)),
            memory=strict.required(body, "memory", strict.integer(0, strict.MAX_GENERATION)),
            vendor=strict.optional(body, "vendor", read_vendor) or NVIDIA,
            gate=strict.optional(body, "gate", strict.boolean) or False,
        )


def gpu_kind(gpu: Gpu) -> GpuKind:
    """Return the kind of a GPU."""
    return GpuKind(gpu.model, gpu.memory, gpu.vendor, gpu.gate)


def gpu_kinds(gpus: Iterable[Gpu]) -> tuple[GpuKind, ...]:
    """Return the kinds of ``gpus``, each once, in the order of the first of each."""
    return tuple(dict.fromkeys(map(gpu_kind, gpus)))


read_gpu_kinds = strict.list_of(GpuKind.from_json, MAX_GPUS)
