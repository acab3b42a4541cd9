"""Versions of packages that this process has loaded, or could load."""

from __future__ import annotations

import sys
from importlib import metadata

from jupyter_gpu.remote.rules.packages import COMPARED


def loaded() -> dict[str, str]:
    """Return the versions of those packages that are loaded and compared."""
    found = {name: getattr(sys.modules.get(name), "__version__", None) for name in COMPARED}
    return {name: version for name, version in found.items() if isinstance(version, str)}


def installed() -> dict[str, str]:
    """Return the versions of those that are installed and compared; importing them would take seconds."""
    found = {}
    for name in COMPARED:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found
