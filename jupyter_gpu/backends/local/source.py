"""Where the GPUs of this machine are asked for: the driver, or the simulation."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jupyter_gpu_node import fakes
from jupyter_gpu_node.gpus import GpuSource

from .settings import Settings
from .store import Store


def simulated_folder(store: Store) -> Path:
    """Devices and load of simulated GPUs, the same for all servers that share ``store``."""
    return store.path / "simulated"


def open_source(settings: Settings, store: Store, leave: Callable[[int], None]) -> GpuSource:
    """Ask what the settings say; ``leave`` takes a helper process out of the pod."""
    if settings.simulated_gpus:
        return fakes.SimulatedGpus(simulated_folder(store), settings.simulated_gpus)
    from jupyter_gpu_node.nvml import NvmlSource

    return NvmlSource(leave)
