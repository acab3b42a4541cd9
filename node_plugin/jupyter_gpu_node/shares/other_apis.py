"""Ways to a GPU that no gate stands in: OpenCL, graphics, ray tracing, video. They are known by their libraries.

These use the kernel driver by themselves, or functions of CUDA's driver that have no names. What works on such a way
cannot ask for turns, and its user means no harm. Reading a process's map blocks: for a thread.
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
"""Beginnings of files' names, and what people call what they are for."""
CUDA = "libcuda.so"
MAX_MAP = 4 << 20


def named(files: Collection[str], *, asks: bool) -> str:
    """Return the ways of a process that has these files mapped, in words; empty: there are none that excuse it.

    One that never asks for turns is excused only if it has no CUDA: with CUDA it could ask.
    """
    if not asks and any(file.startswith(CUDA) for file in files):
        return ""
    found = [name for library, name in LIBRARIES if any(file.startswith(library) for file in files)]
    return ", ".join(dict.fromkeys(found))


def ways_of(found: Mapping[str, Collection[ProcessId]], members: Collection[ProcessId]) -> dict[str, str]:
    """Return the ways by share; none of a share of which one process has no excuse."""
    ways = {}
    for share, processes in found.items():
        by_process = [named(_mapped(one.pid), asks=one in members) for one in sorted(processes)]
        if by_process and all(by_process):
            ways[share] = ", ".join(dict.fromkeys(by_process))
    return ways


def _mapped(pid: int) -> set[str]:
    """Return the names of the files that it has mapped; none if that cannot be read."""
    try:
        with Path(f"/proc/{pid}/maps").open(errors="replace") as file:
            lines = file.read(MAX_MAP).splitlines()
    except OSError:
        return set()
    return {line.rpartition("/")[2] for line in lines if "/" in line}
