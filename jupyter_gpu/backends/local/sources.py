"""The source of the GPUs that a server of this machine uses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from jupyter_gpu.model.gpu import AMD
from jupyter_gpu_node.gpus import simulated, vendors
from jupyter_gpu_node.gpus.rules.vendor import Host
from jupyter_gpu_node.gpus.source import GpuSource

from .processes.identity import FIRST_NAMESPACE, namespace
from .records.store import StateStore
from .settings import Settings


def simulated_folder(store: StateStore) -> Path:
    """Return the folder where simulated GPUs lie."""
    return store.path / "simulated"


def open_source(
    settings: Settings, store: StateStore, leave: Callable[[int], None], unguarded: Callable[[], bool]
) -> GpuSource:
    """Open the GPUs; ``leave`` moves a helper process out of the pod, ``unguarded`` says whether the mode is soft."""
    if settings.simulated_gpus:
        return simulated.SimulatedGpus(simulated_folder(store), settings.simulated_gpus)
    if any(vendor.name == AMD for vendor in settings.vendors) and namespace() != FIRST_NAMESPACE:
        raise ValueError(
            "AMD's GPUs cannot be used in a container with process numbers of its own: its driver tells which programs "
            "have a GPU by the numbers of the machine, so no GPU could be given back safely."
        )
    return vendors.open_sources(settings.vendors, Host(leave, unguarded))
