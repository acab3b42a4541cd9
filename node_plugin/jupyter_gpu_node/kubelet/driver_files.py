"""Finds the files of the NVIDIA driver that containers get; `allocation` chooses them. Blocks."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpu_node.kubelet.rules import allocation
from jupyter_gpu_node.kubelet.rules.allocation import Mount
from jupyter_gpu_node.settings import Driver, Settings


def find(settings: Settings) -> tuple[Mount, ...]:
    """Return the driver's mounts; empty if there is none. Simulated GPUs have one only if a root of its own is set."""
    if settings.simulated is not None and settings.driver.root == Driver().root:
        return ()
    paths = (*allocation.LIBRARY_DIRECTORIES, *allocation.PROGRAM_DIRECTORIES)
    return allocation.find_driver({path: _names(settings.driver.seen / path) for path in paths}, settings.driver)


def _names(directory: Path) -> list[str]:
    try:
        return [path.name for path in directory.iterdir()]
    except OSError:
        return []
