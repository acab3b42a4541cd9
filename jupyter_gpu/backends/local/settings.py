"""The settings that an administrator can choose for a backend of one machine."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from jupyter_gpu_node.devices.enforcement import Preference
from jupyter_gpu_node.gpus import vendors
from jupyter_gpu_node.gpus.rules.vendor import Vendor


def read_vendors(names: list[str]) -> tuple[Vendor, ...]:
    """Read the names of vendors, and load those; raises ValueError with the reason."""
    return vendors.read(names, "vendors")


class Settings(NamedTuple):
    """The settings of one server."""

    state_dir: Path | None = None
    """Shared by all servers of the machine; ``None`` chooses it."""
    simulated_gpus: int = 0
    """Number of simulated GPUs in place of the real ones; 0: the real ones."""
    vendors: tuple[Vendor, ...] = (vendors.NVIDIA,)
    """Vendors of the real GPUs that are used; in a cluster ``node.settings.vendors``."""
    limit: int | None = None
    """Milli that the user may have; ``None``: all there are."""
    fractions: tuple[int, ...] = (250, 500)
    """Parts of a GPU that are offered, in milli."""
    enforcement: Preference = "auto"
    """``auto`` guards devices if the rights are there, ``required`` refuses to start without, ``soft`` never does."""
    system_holders: tuple[str, ...] = ()
    """Names of programs outside every pod that may have GPUs open for ever, such as ``Xorg``."""
    priority: int = 0
    """Priority of a wish that does not name its own: 0–9, higher is served first."""
    patience: float = 600.0
    """Seconds in line after which no later wish is served first, whatever its priority; in a cluster the scheduler's
    ``patience_seconds``, with the same default."""
    look: float = 5.0
    """Seconds between two looks at which GPUs are open and used; in a cluster ``node.settings.openSeconds``."""
    rest: float = 60.0
    """Seconds without use after which an open GPU rests; in a cluster ``node.settings.restSeconds``."""
    follow_visible_devices: bool = True
    """Whether the `CUDA_VISIBLE_DEVICES` that this process was started with limits the GPUs; simulated ones never."""
    pid: int | None = None
    """The process that stands for the pod; ``None``: this one."""
