"""APIs that reach a GPU without the gate: OpenCL, graphics, ray tracing, video. They are known by their libraries.

They use the kernel driver directly, or unnamed functions of CUDA's driver. A program that uses them cannot ask for
turns, which is not its user's fault. Reading a process's memory map blocks: for a thread.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path

from jupyter_gpu_node.processes.rules.process_id import ProcessId

LIBRARIES = (
    ("libnvidia-opencl.so", "OpenCL"),
    ("libnvidia-glvkspirv.so", "Vulkan"),
    ("libnvidia-glcore.so", "OpenGL or Vulkan"),
    ("libnvidia-eglcore.so", "OpenGL or Vulkan"),
    ("libnvoptix.so", "OptiX"),
    ("libnvidia-encode.so", "NVENC"),
    ("libnvcuvid.so", "NVDEC"),
)
"""Prefixes of file names, and the usual name of each API."""
CUDA = "libcuda.so"
MAX_MAP = 4 << 20


def named(files: Collection[str], *, asks: bool) -> str:
    """Return the APIs of a process that has these files mapped, in words; empty: it could ask for turns.

    A process that never asks for turns counts as unable to ask only if it has no CUDA.
    """
    if not asks and any(file.startswith(CUDA) for file in files):
        return ""
    found = [name for library, name in LIBRARIES if any(file.startswith(library) for file in files)]
    return ", ".join(dict.fromkeys(found))


def apis_of(found: Mapping[str, Collection[ProcessId]], members: Collection[ProcessId]) -> dict[str, str]:
    """Return the APIs by share, without shares that have a process that could ask."""
    apis = {}
    for share, processes in found.items():
        by_process = [named(_mapped(one.pid), asks=one in members) for one in sorted(processes)]
        if by_process and all(by_process):
            apis[share] = ", ".join(dict.fromkeys(by_process))
    return apis


def _mapped(pid: int) -> set[str]:
    """Return the names of the files that it has mapped; none if that cannot be read."""
    try:
        with Path(f"/proc/{pid}/maps").open(errors="replace") as file:
            lines = file.read(MAX_MAP).splitlines()
    except OSError:
        return set()
    return {line.rpartition("/")[2] for line in lines if "/" in line}
