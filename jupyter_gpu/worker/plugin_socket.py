"""Questions of a worker's pod to the node plugin, by the socket in its slot's directory: one line there, one back."""

from __future__ import annotations

import socket
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu.remote.rules import pairing

VARIABLE = "JUPYTER_GPU_NODE_SOCKET"
"""The environment variable with the path of the socket; the node plugin sets it."""
PATIENCE = 10.0
"""Seconds that the node plugin may take."""


def ask(path: Path, what: str) -> bytes:
    """Return the answer to a question. Raises `OSError`."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(PATIENCE)
        connection.connect(str(path))
        connection.sendall(strict.dumps({"get": what}).encode() + b"\n")
        with connection.makefile("rb") as lines:
            return lines.readline(pairing.MAX_LINE + 1)
