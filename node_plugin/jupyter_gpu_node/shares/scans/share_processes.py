"""The processes that are connected for a share, and those that the driver sees there."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from jupyter_gpu_node.processes import signals
from jupyter_gpu_node.processes.rules.process_id import ProcessId, ProcessIds
from jupyter_gpu_node.shares.rules.framing import MOST
from jupyter_gpu_node.shares.rules.protocol import Done
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer
from jupyter_gpu_node.shares.server.clocks import microseconds

T = TypeVar("T")


def connected_processes(server: ArbiterServer, gpu: str) -> list[tuple[str, ProcessId]]:
    """Return the processes that are connected for that GPU, with their pods."""
    return [(one.pod, ProcessId(one.process.pid, one.process.start)) for one in server.connected() if one.gpu == gpu]


def connected_for(server: ArbiterServer, gpu: str, pod: str) -> ProcessIds:
    """Return the processes that are connected for that share."""
    return frozenset(process for of, process in connected_processes(server, gpu) if of == pod)


def holders(server: ArbiterServer, gpu: str, pod: str) -> ProcessIds:
    """Return the processes of the share that have the GPU."""
    gpu_server = server.gpu_server(gpu)
    found = gpu_server.processes.items() if gpu_server else ()
    return ProcessIds(
        ProcessId(connection.peer.pid, connection.peer.start)
        for client, connection in found
        if client.holds and client.share.name == pod
    )


def give_back(
    server: ArbiterServer, gpu: str, pod: str, processes: Collection[ProcessId], *, shut: bool = False
) -> None:
    """Give the GPU back for those of ``processes`` that have it: all the time that they had it counts as use.

    ``shut``: only for those that can launch nothing more under that lease, whenever they run again.
    """
    gpu_server = server.gpu_server(gpu)
    for client, connection in list(gpu_server.processes.items()) if gpu_server else ():
        process = ProcessId(connection.peer.pid, connection.peer.start)
        if shut and gpu_server and not gpu_server.manager.shut(client, microseconds()):
            continue
        if gpu_server and client.share.name == pod and client.holds and process in processes:
            gpu_server.received(connection, [Done(None, MOST, client.number)])


def attributed(
    pods: Collection[str],
    by_pid: Mapping[int, T],
    known: Mapping[ProcessId, str],
    pod_of: Callable[[int], str | None],
) -> dict[str, dict[ProcessId, T]]:
    """Return the driver's figures by share and process, without processes outside these shares.

    It reads ``/proc``: for a thread.
    """
    found: dict[str, dict[ProcessId, T]] = {}
    for pid, value in by_pid.items():
        process = signals.identify(pid)
        pod = (known.get(process) or pod_of(pid)) if process and pid != os.getpid() else None
        if process and pod is not None and pod in pods:
            found.setdefault(pod, {})[process] = value
    return found
