"""The socket of one share, and its connections. Turns are decided elsewhere."""

from __future__ import annotations

from pathlib import Path

from jupyter_gpu_node.shares.rules.protocol import FromClient, FromServer, encode, from_client

from .gate_socket import Connection, ConnectionHandler, GateSocket
from .peer import Check

ShareConnection = Connection[FromClient, FromServer]


class ShareSocket(GateSocket[FromClient, FromServer]):
    """The socket of one share of ``pod``. Its siblings are those of the pod's shares of other GPUs."""

    def __init__(
        self, gpu: str, pod: str, directory: Path, check: Check, handler: ConnectionHandler[FromClient, FromServer]
    ) -> None:
        title = f"Share of pod {pod} on {gpu}"
        super().__init__(title, pod, check, handler, from_client, encode, "one share")
        self.directory = directory
