"""Device nodes that the host has now, as this process sees its ``/dev``. Blocks, for microseconds."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.kubelet.rules import allocation
from jupyter_gpu_node.settings import Driver, Settings

PCI = Path("/sys/bus/pci/devices")


def present(hosts: Iterable[str], driver: Driver) -> frozenset[str]:
    """Return those of ``hosts``, paths of the host, that exist."""
    return frozenset(host for host in hosts if exists(host, driver))


def exists(host: str, driver: Driver) -> bool:
    """Tell whether the host has that device node."""
    seen = driver.devices / host.removeprefix("/dev/") if host.startswith("/dev/") else Path(host)
    return seen.exists()


def unusable(gpus: tuple[Gpu, ...], silent: str, settings: Settings) -> str:
    """Say why a container created now could use no GPU, empty if it can; ``silent``: why the driver is silent."""
    bare = not gpus and is_bare(settings)
    there = present((node.host for node in allocation.nodes(gpus, settings)), settings.driver)
    return allocation.unusable(gpus, there, settings, silent=silent, bare=bare)


def is_bare(settings: Settings, devices: Path = PCI) -> bool:
    """Tell whether this node offers slots although it has no GPU: none on its PCI bus, whatever drivers say.

    A GPU whose driver is silent, or not loaded yet, must be there for the containers that are created then.
    """
    if not settings.without_gpus:
        return False
    if settings.simulated is not None:
        return True
    try:
        found = [(_number(one / "vendor"), _number(one / "class") >> 8) for one in devices.iterdir()]
    except (OSError, ValueError):  # not known, so it may have one
        return False
    return not any(allocation.is_gpu(maker, kind) for maker, kind in found)


def _number(path: Path) -> int:
    return int(path.read_text(), 16)
