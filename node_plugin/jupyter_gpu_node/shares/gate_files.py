"""Paths of this installation's gate, the small library that makes programs of a time share ask for their turns, and of
the one before NVML.

It is compiled when the package is built, for one platform; a package that was built without a C compiler has none.
"""

from __future__ import annotations

from pathlib import Path

LIBRARIES = Path(__file__).parents[1] / "lib"
"""The folder with both forms."""
NVML = "libnvidia-ml.so.1"
NVML_BEHIND = "libjupyter_gpu_nvml.so.1"
"""Name by which the local form of the library before NVML finds NVML; as in its build."""
NVML_IN_POD = f"/run/jupyter-gpu/driver/{NVML}"
"""NVML in a pod where something stands at its own path; as in the build."""


def local() -> Path | None:
    """Return the form for LD_LIBRARY_PATH, on one machine; None: there is none here."""
    return _found(LIBRARIES / "local" / "libcuda.so.1")


def shim() -> Path | None:
    """Return the form that stands at the path of ``libcuda.so.1`` in a pod; None: there is none here."""
    return _found(LIBRARIES / "shim" / "libcuda.so.1")


def nvml_beside(gate: Path) -> Path | None:
    """Return the library that stands before NVML, in the same form as ``gate``; None: there is none here."""
    return _found(gate.with_name(NVML))


def _found(path: Path) -> Path | None:
    """Return the path of a readable file, else None: if unreadable, no program of this user could open the driver."""
    try:
        with path.open("rb"):  # access(2) asks for the real user, and leaves out capabilities
            return path
    except OSError:
        return None
