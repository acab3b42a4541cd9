"""The memory of processes according to the driver, made comparable with what they reported. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.turns.memory import MeasuredMemory

MIB = 2**20
C = TypeVar("C")
"""A connection."""


def by_client(
    processes: Mapping[C, ProcessId], held: Mapping[ProcessId, int], context: int, reported: Mapping[C, int]
) -> tuple[dict[C, MeasuredMemory], int]:
    """Return what each connection's process holds beyond its contexts, and what those without a connection hold.

    A process counts once however often it is connected: by its first connection, less what the others reported. One
    that connected after the driver was asked, and so is not in ``reported``, may have reported its memory in another
    connection before, and is not measured yet.
    """
    connections: dict[ProcessId, list[C]] = {}
    for client, process in processes.items():
        connections.setdefault(process, []).append(client)
    found: dict[C, MeasuredMemory] = {}
    outside = 0
    for process, whole in held.items():
        size = max(0, whole - context)
        clients = connections.get(process, [])
        if not clients:
            outside += size
        elif all(client in reported for client in clients):
            first, *others = clients
            found[first] = MeasuredMemory(max(0, size - sum(reported[other] for other in others)), reported[first])
    return found, outside
