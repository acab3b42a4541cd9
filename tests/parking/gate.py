"""The other end of ``park.sock`` as a test plays it: a gate over a real socket."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Self

from jupyter_gpu_node.parking.rules.messages import Ability, FromGate, FromNode, Gpu, Hello, ProcessState, State
from jupyter_gpu_node.parking.rules.protocol import encode, from_node

PATIENCE = 60.0
"""Seconds after which a test has failed."""
UUID = "GPU-00000000-0000-0000-0000-000000000001"
ABLE = Ability.PARK | Ability.SHUT


class Gate:
    """One connection."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(str(path))
        except BaseException:
            self.socket.close()
            raise
        self.socket.settimeout(PATIENCE)
        self._stream = from_node()
        self._came: list[FromNode] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def say(self, *messages: FromGate) -> None:
        """Send messages."""
        self.raw(b"".join(encode(message) for message in messages))

    def raw(self, data: bytes) -> None:
        """Send any bytes."""
        self.socket.sendall(data)

    def introduce(self, state: ProcessState = ProcessState(State.RUNNING)) -> None:  # noqa: B008 - frozen
        """Say who it is."""
        self.say(Hello(13000, ABLE, 1), Gpu(UUID, 0), state)

    def next(self) -> FromNode:
        """Return the next message; raises `EOFError` at the end of the connection."""
        while not self._came:
            try:
                data = self.socket.recv(4096)
            except ConnectionResetError:
                data = b""
            if not data:
                raise EOFError
            self._came += self._stream.feed(data)
        return self._came.pop(0)

    def ended(self) -> bool:
        """Wait for the end of the connection."""
        try:
            self.next()
        except EOFError:
            return True
        return False
