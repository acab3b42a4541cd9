"""Pure: kinds of GPUs, by which limits count them."""

from __future__ import annotations

from typing import NamedTuple

from jupyter_gpu.model.gpu import Gpu


class GpuKind(NamedTuple):
    """The properties of GPUs that limits count by."""

    model: str
    memory: int
    """Bytes."""
    vendor: str
    gate: bool = False
    """Whether a share of it may have other memory than its part."""


def gpu_kind(gpu: Gpu) -> GpuKind:
    """Return the kind of a GPU."""
    return GpuKind(gpu.model, gpu.memory, gpu.vendor, gpu.gate)
