"""Questions about the processes of a node. One machine answers them from its records, a cluster from its pods."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jupyter_gpu_node.gpus.registry import NVIDIA
from jupyter_gpu_node.processes import device_scan
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.server.peer import Check


def has_gpu_open(pid: int) -> bool:
    """Tell whether that process has a real GPU open; raises `OSError` if it cannot be inspected."""
    return device_scan.has_open(pid, NVIDIA)


@dataclass(frozen=True, slots=True)
class NodeProcesses:
    """The functions that answer questions about a node's processes."""

    check: Check
    """Checks a process that connects to the socket of a share."""
    pod_of: Callable[[int], str | None] = lambda _: None
    """Returns the pod of a pid. Called in a thread."""
    servers: Callable[[], Iterable[ProcessId]] = lambda: ()
    """Returns the Jupyter servers: their children are programs of their own, and those without a GPU never stop."""
    opens: Callable[[int], bool] = has_gpu_open
    """Tells whether a pid has a GPU open. Called in a thread."""
