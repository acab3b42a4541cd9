"""The memory of processes by the driver's word, made comparable with what they told. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.turns.memory import Held

MIB = 2**20
C = TypeVar("C")
"""A connection."""


def by_client(
    processes: Mapping[C, ProcessId], held: Mapping[ProcessId, int], context: int, told: Mapping[C, int]
) -> tuple[dict[C, Held], int]:
    """Return what each connection's process holds beyond its contexts, and what those without a connection hold.

    A process counts once however often it is connected: by its first connection, less what the others told. One that
    connected after the driver was asked, and so is not in ``told``, may have told in another connection before, and is
    not measured yet.
    """
    connections: dict[ProcessId, list[C]] = {}
    for client, process in processes.items():
        connections.setdefault(process, []).append(client)
    found: dict[C, Held] = {}
    outside = 0
    for process, whole in held.items():
        size = max(0, whole - context)
        clients = connections.get(process, [])
        if not clients:
            outside += size
        elif all(client in told for client in clients):
            first, *others = clients
            found[first] = Held(max(0, size - sum(told[other] for other in others)), told[first])
    return found, outside
