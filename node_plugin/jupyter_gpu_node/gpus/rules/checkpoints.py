"""Which drivers can park a process: move its GPU memory to host memory and close its GPU. Pure."""

from __future__ import annotations

import re

OLDEST = 580
"""The first driver with which that was measured, by the first part of its version."""
_VERSION = re.compile(r"\.so\.(\d{1,6})(?:\.|$)")


def can_park(library: str) -> bool:
    """Tell whether the driver with a library of this name can, as ``libnvidia-ml.so.580.126.09``.

    A name without the driver's version tells nothing: False.
    """
    found = _VERSION.search(library)
    return found is not None and int(found[1]) >= OLDEST
