"""A control group whose processes may open the GPUs or not, with the product's own rules; without it, device nodes."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path

from jupyter_gpu.model.gpu import Device
from jupyter_gpu_node.devices.enforcement import choose
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules


def gpu_nodes() -> list[Path]:
    """Return the device nodes of single GPUs."""
    return sorted(path for path in Path("/dev").glob("nvidia[0-9]*") if stat.S_ISCHR(path.stat().st_mode))


class Door:
    """Opens and closes all GPUs for this process, and for those that it starts. They are closed at first."""

    def __init__(self) -> None:
        nodes = [path.stat().st_rdev for path in gpu_nodes()]
        self._gpus = frozenset(Device(os.major(node), os.minor(node)) for node in nodes)
        self._managed = self._gpus | {Device(195, 250)}  # rules that deny nothing are refused
        self._rules = choose(self._managed, f"survey-{os.getpid()}", preference="required")

    def open(self) -> None:
        """Let GPUs be opened."""
        self._rules.apply(DeviceRules(self._managed, self._gpus))

    def close(self) -> None:
        """Let no GPU be opened; what is open stays open."""
        self._rules.apply(DeviceRules.closed(self._managed))


@contextlib.contextmanager
def nodes_away() -> Iterator[None]:
    """Rename the device nodes of the GPUs meanwhile."""
    nodes = gpu_nodes()
    for node in nodes:
        node.rename(node.with_name(f"away-{node.name}"))
    try:
        yield
    finally:
        for node in nodes:
            node.unlink(missing_ok=True)  # the driver makes one where it may
            node.with_name(f"away-{node.name}").rename(node)
