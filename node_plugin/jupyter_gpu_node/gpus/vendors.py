"""The vendors whose GPUs can be used: those below, and those of installed packages.

A package brings a vendor by an entry point of the group `GROUP`, whose name is the vendor's, and which leads to a
`Vendor`. A vendor counts only where the settings name it, as its code runs with the rights of the node plugin. NVIDIA
and AMD need no entry point: metadata that is damaged must not open GPUs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from jupyter_gpu.model import gpu as model
from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import Device

from .joined import JoinedSources
from .registry import NVIDIA as NVIDIA_DEVICES
from .rules.vendor import Host, Vendor, mistake
from .source import GpuSource

GROUP = "jupyter_gpu_vendors"
"""The entry points that lead to vendors."""
MOST = 8
"""Vendors of one node."""


def _open_nvidia(host: Host) -> GpuSource:
    from .nvml import NvmlSource

    return NvmlSource(host.leave, bare=host.bare)


def _open_amd(host: Host, system: Path = Path("/sys")) -> GpuSource:
    from .amd import AmdSource

    source = AmdSource(system)
    if host.leave is not None:
        source.inventory()  # now: soon the driver will hide the GPUs from this server, as its pod may not open them
    return source


NVIDIA = Vendor(
    model.NVIDIA,
    _open_nvidia,
    NVIDIA_DEVICES,
    control=("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),
    optional=("/dev/nvidia-uvm-tools", "/dev/nvidia-modeset"),  # CUDA does without them
)
AMD = Vendor(
    model.AMD,
    _open_amd,
    # All devices of graphics cards (`/dev/dri`), `card0` and so on among them: they lead to a GPU, too.
    frozenset(Device(226, minor) for minor in range(512)),
    control=("/dev/kfd",),
)
BUILT_IN = {vendor.name: vendor for vendor in (NVIDIA, AMD)}


def read(value: Any, key: str) -> tuple[Vendor, ...]:
    """Read a list of vendors' names, and load those vendors; raises `FieldError`."""
    names = strict.list_of(model.read_vendor, MOST)(value, key)
    if not names or len(set(names)) < len(names):
        raise strict.FieldError(f"{key!r} must name one vendor or several, each once, such as ['nvidia'].", key)
    return tuple(BUILT_IN.get(name) or _installed(name, key) for name in names)


def _installed(name: str, key: str) -> Vendor:
    from importlib.metadata import entry_points

    points = entry_points(group=GROUP)
    found = [point for point in points if point.name == name]
    if len(found) != 1:
        count = "no installed package has" if not found else f"{len(found)} installed packages have"
        known = ", ".join(sorted({*BUILT_IN, *points.names}))
        raise strict.FieldError(f"{key!r}: {count} the vendor {name!r}. Known are {known}.", key)
    try:
        made = found[0].load()
    except Exception as error:
        text = (
            f"{key!r}: the vendor {name!r} cannot be loaded from {found[0].value}: {strict.printable(str(error), 300)}"
        )
        raise strict.FieldError(text, key) from error
    if not isinstance(made, Vendor) or made.name != name:
        raise strict.FieldError(f"{key!r}: {found[0].value} is not the vendor {name!r}.", key)
    if wrong := mistake(made):
        raise strict.FieldError(f"{key!r}: {found[0].value} is no vendor whose GPUs can be guarded. {wrong}", key)
    return made


def devices(vendors: Iterable[Vendor]) -> frozenset[Device]:
    """Return every device that a GPU of these vendors can have."""
    return frozenset().union(*(vendor.devices for vendor in vendors))


def open_sources(vendors: Sequence[Vendor], host: Host) -> GpuSource:
    """Open the GPUs of all vendors as one source. Raises OSError or ValueError; then none stays open."""
    if len(vendors) == 1:
        return vendors[0].open(host)
    made: list[GpuSource] = []
    try:
        for vendor in vendors:
            made.append(vendor.open(host))  # noqa: PERF401 - what was opened before an error is closed
    except BaseException:
        for source in made:
            with suppress(OSError):
                source.close()
        raise
    return JoinedSources(made)
