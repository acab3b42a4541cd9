"""Device files that this process has open or mapped, which tell whether CUDA has started in it."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable

_NODE = re.compile(r"/dev/nvidia\d+")


def open_files() -> list[str]:
    """List the names of the files that this process has open."""
    found = []
    try:
        for entry in os.scandir("/proc/self/fd"):
            try:
                found.append(os.readlink(entry.path))  # noqa: PTH115 - these are no paths
            except OSError:
                continue  # closed meanwhile
    except OSError:
        return []
    return found


def mapped_devices() -> list[str]:
    """List the device files that this process has mapped."""
    try:
        with open("/proc/self/maps", errors="surrogateescape") as lines:  # noqa: PTH123 - kernels load no pathlib for us
            return [line.split(None, 5)[5].rstrip("\n") for line in lines if " /dev/" in line]
    except OSError:
        return []


def cuda_nodes(links: Iterable[str], mapped: Iterable[str]) -> frozenset[str]:
    """List the device nodes that CUDA uses in a process with these files open and mapped; none if it has not started.

    NVML opens GPUs as well, and ``nvidia-uvm`` since driver 580, but maps none of them; CUDA maps them when it starts.
    """
    if not any(_NODE.fullmatch(name) for name in mapped):
        return frozenset()
    return frozenset(name for name in links if _NODE.fullmatch(name))
