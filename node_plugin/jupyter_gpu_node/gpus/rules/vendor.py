"""A vendor: what a maker's GPUs need that those of others do not. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from jupyter_gpu.model.gpu import Device

if TYPE_CHECKING:  # it is no rule, and what it imports is not needed to describe a vendor
    from jupyter_gpu_node.gpus.source import GpuSource

_NAME = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


class Host(NamedTuple):
    """The program that opens a source of GPUs, as far as a source must know it."""

    leave: Callable[[int], None] | None = None
    """Moves a helper process, by its pid, out of the pod whose server opens the source; None: there is no such pod."""
    bare: Callable[[], bool] = lambda: False
    """Tells whether GPUs without a device of their own count: nothing can guard them."""


class Vendor(NamedTuple):
    """A maker of GPUs."""

    name: str
    """As in `Gpu.vendor`."""
    open: Callable[[Host], GpuSource]
    """Makes the source of its GPUs; raises OSError or ValueError if they cannot even be looked for."""
    devices: frozenset[Device]
    """Every device that a GPU of it can have. No pod opens one without a grant, whether or not the driver answers."""
    control: tuple[str, ...] = ()
    """Devices other than GPUs through which a program talks to the driver: containers may open them."""
    optional: tuple[str, ...] = ()
    """Those of ``control`` that programs can do without."""


def mistake(vendor: Vendor) -> str | None:
    """Return a sentence on what keeps the GPUs of ``vendor`` from being guarded, if there is something."""
    if not _NAME.fullmatch(vendor.name):
        return "A vendor's name has at most 32 lower-case letters, digits and hyphens."
    if not vendor.devices:
        return "It names no devices of its GPUs, so that nothing could guard them."
    if not set(vendor.optional) <= set(vendor.control):
        return "Its optional devices are not among its control devices."
    return None
