"""Simulated sensor values of a GPU, by how busy it is; pure. A real GPU has its own (`nvml`)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from jupyter_gpu.model.view import GpuLoad

if TYPE_CHECKING:  # loaded at the first question, not when a server starts
    from jupyter_gpu.model.details import LinkRates, ProcessUse, Reading

SLOWDOWN = 90
"""°C."""
POWER_LIMIT = 300.0
"""Watts."""
_IDLE_CELSIUS, _MORE_CELSIUS = 34, 44
_IDLE_WATTS, _MORE_WATTS = 28.0, 250.0
_PCIE, _NVLINK = 12_000_000_000, 180_000_000_000
"""Bytes a second into a GPU that is wholly busy; half as much comes out."""


def load(busy: float, memory: int) -> GpuLoad:
    """Return the load of a GPU that is ``busy`` (0–1) with ``memory`` bytes in use."""
    temperature, power = round(_IDLE_CELSIUS + _MORE_CELSIUS * busy), round(_IDLE_WATTS + _MORE_WATTS * busy, 1)
    return GpuLoad(100 * busy, memory, temperature, power)


def reading(busy: float, uses: Iterable[ProcessUse], *, linked: bool) -> Reading:
    """Return the reading of a GPU that is ``busy`` (0–1); ``linked``: whether it has an NVLink."""
    from jupyter_gpu.model.details import Reading

    return Reading(SLOWDOWN, POWER_LIMIT, _rates(_PCIE * busy), _rates(_NVLINK * busy) if linked else None, tuple(uses))


def _rates(into: float) -> LinkRates:
    from jupyter_gpu.model.details import LinkRates

    return LinkRates(int(into), int(into / 2))
