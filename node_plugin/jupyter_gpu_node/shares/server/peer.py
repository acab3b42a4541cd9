"""Identity of the process at the other end of a connection: from the kernel, never from the process itself.

The process that connected is looked up in ``/proc``. In a pod it must be in that pod's control group, on one machine in
the group of the server. A process that has ended meanwhile has no identity.
"""

from __future__ import annotations

import socket
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import PurePosixPath
from struct import Struct

from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.devices.pod_cgroups import pod_of
from jupyter_gpu_node.processes import proc

_CREDENTIALS = Struct("3i")  # struct ucred, socket(7)


@dataclass(frozen=True, slots=True)
class Peer:
    """The process that made the connection."""

    pid: int
    """PID as this process sees it; 0: it is in a pid namespace that we cannot see."""
    user: int
    start: int
    """Clock ticks after boot at which it started: with the pid, a process that cannot be mistaken for a later one."""

    @property
    def alive(self) -> bool:
        """Whether it still runs."""
        return proc.alive(self.pid, self.start)


Check = Callable[[Peer, str], str]
"""Check of a process for the pod whose share it wants: empty, or why it may not have the share."""


def user_of(connection: socket.socket) -> int:
    """Return the user whose process connected."""
    _, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return int(user)


def peer_of(connection: socket.socket) -> Peer:
    """Return the process that connected; raises `ProcessLookupError` if it has ended, and `OSError`."""
    pid, user, _ = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    start = proc.process_start_time(pid) if pid > 0 else None
    if start is None:
        raise ProcessLookupError(f"process {pid} connected and is not there")
    return Peer(pid, user, start)


def in_its_pod(peer: Peer, pod: str) -> str:
    """Check, on nodes of a cluster, that the process is in the control group of that very pod."""
    found = pod_of(peer.pid)
    if found == pod and peer.alive:
        return ""
    return f"process {peer.pid} is in {f'pod {found}' if found else 'no pod'}, and the socket is that of pod {pod}"


def beside_us(peer: Peer, pod: str) -> str:
    """Check, on one machine, that the process is in our own control group or below it."""
    try:
        ours, theirs = (PurePosixPath(cgroup.membership(pid).get("", "/")) for pid in (None, peer.pid))
    except OSError:
        return f"process {peer.pid} has ended"
    if theirs.is_relative_to(ours) and peer.alive:
        return ""
    return f"process {peer.pid} is in the control group {theirs}, and the socket of {pod} is for {ours}"
