"""What the sensors of a simulated GPU say, by how busy it is; pure. A real GPU has its own (:mod:`.nvml`)."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.details import ProcessUse, Rates, Reading
from jupyter_gpu.model.view import GpuLoad

SLOWDOWN = 90
"""°C."""
POWER_LIMIT = 300.0
"""Watts."""
_IDLE_CELSIUS, _MORE_CELSIUS = 34, 44
_IDLE_WATTS, _MORE_WATTS = 28.0, 250.0
_PCIE, _NVLINK = 12_000_000_000, 180_000_000_000
"""Bytes a second into a GPU that is wholly busy; half as much comes out."""


def load(busy: float, memory: int) -> GpuLoad:
    """Of a GPU that is ``busy`` (0–1) with so many bytes in use."""
    temperature, power = round(_IDLE_CELSIUS + _MORE_CELSIUS * busy), round(_IDLE_WATTS + _MORE_WATTS * busy, 1)
    return GpuLoad(100 * busy, memory, temperature, power)


def reading(busy: float, uses: Iterable[ProcessUse], *, linked: bool) -> Reading:
    """Of the same; ``linked``: whether it has an NVLink."""
    return Reading(SLOWDOWN, POWER_LIMIT, _rates(_PCIE * busy), _rates(_NVLINK * busy) if linked else None, tuple(uses))


def _rates(into: float) -> Rates:
    return Rates(int(into), int(into / 2))
