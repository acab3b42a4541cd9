"""The socket ``park.sock`` of one pod, beside those of its shares: the gates of all its programs connect to it."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpu_node.parking.rules.messages import FromGate, FromNode
from jupyter_gpu_node.parking.rules.protocol import encode, from_gate
from jupyter_gpu_node.shares.server.gate_socket import Connection, ConnectionHandler, GateSocket
from jupyter_gpu_node.shares.server.peer import Check

NAME = "park"
"""The name of its file, before ``.sock``. No GPU has that one."""
MOST_PROCESSES = 64
"""Connections of one pod."""
GateConnection = Connection[FromGate, FromNode]


class ParkSocket(GateSocket[FromGate, FromNode]):
    """The socket of one pod."""

    def __init__(self, pod: str, directory: Path, check: Check, handler: ConnectionHandler[FromGate, FromNode]) -> None:
        super().__init__(f"Parking of pod {pod}", pod, check, handler, from_gate, encode, "one pod")
        self.directory = directory
        self.most = MOST_PROCESSES
