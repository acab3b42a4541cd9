"""Acts for a share whose processes are stopped: they can neither ask for the GPU nor give it back.

A proxy is one more client of the share, with a connection like any other whose other end is here. It asks for the GPU,
reports its turn, and gives the GPU back when asked to or when the time is over.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable

from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.shares.rules.framing import SIZE, Malformed
from jupyter_gpu_node.shares.rules.protocol import (
    FOREVER,
    Ask,
    Done,
    FromClient,
    FromServer,
    Grant,
    Revoke,
    encode,
    from_server,
)
from jupyter_gpu_node.shares.server.arbiter_server import ArbiterServer
from jupyter_gpu_node.shares.server.clocks import microseconds
from jupyter_gpu_node.shares.server.peer import Peer
from jupyter_gpu_node.shares.server.share_socket import ShareConnection


class Proxy:
    """A stand-in that asks for one turn of a share whose processes are stopped.

    It asks after ``after`` seconds. ``turn`` is called when it gets the GPU, ``over`` when it has had it, but not after
    a `close` or `release`. Raises `LookupError` if there is no such share.
    """

    def __init__(
        self,
        server: ArbiterServer,
        gpu: str,
        pod: str,
        turn: Callable[[], None],
        over: Callable[[], None],
        after: float = 0,
    ) -> None:
        share_socket = server.share_socket(gpu, pod)
        self.ended = False
        self._turn = turn
        self._ends = over
        self._loop = asyncio.get_running_loop()
        self._stream = from_server()
        self._number = 0
        self._since = 0
        self._holds = False
        self._over: asyncio.TimerHandle | None = None
        self._socket, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        self._socket.setblocking(False)
        far.setblocking(False)
        ours = Peer(os.getpid(), os.getuid(), proc.process_start_time(os.getpid()) or 0)
        connection = ShareConnection(share_socket, far, ours)
        self._loop.add_reader(self._socket.fileno(), self._read)
        share_socket.connections.add(connection)
        try:
            share_socket.handler.connected(connection)
        except LookupError:
            connection.close()
            self.close()
            raise
        self._over = self._loop.call_later(after, self._send, Ask(0))

    def release(self) -> None:
        """End the proxy, which is not needed any more, after the turn that it has."""
        if not self._holds:
            self.close()

    def close(self) -> None:
        """End the connection, at once; again: nothing."""
        if not self.ended:
            self.ended = True
            if self._over:
                self._over.cancel()
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _read(self) -> None:
        try:
            data = self._socket.recv(SIZE * 16)
            messages = self._stream.feed(data) if data else None
        except BlockingIOError:
            return
        except (OSError, Malformed):
            messages = None
        if messages is None:
            self._end()
            return
        for message in messages:
            self._hear(message)

    def _hear(self, message: FromServer) -> None:
        match message:
            case Grant(duration, number):
                fresh = number != self._number
                if fresh:
                    self._number, self._since, self._holds = number, microseconds(), True
                if self._over:
                    self._over.cancel()
                self._over = None if duration == FOREVER else self._loop.call_later(duration / 1e6, self._done)
                if fresh:
                    self._turn()
            case Revoke(number) if number == self._number:
                self._done()
            case _:
                pass

    def _done(self) -> None:
        """Give its one turn back, and end."""
        if self._holds and not self.ended:
            self._holds = False
            self._send(Done(None, max(0, microseconds() - self._since), self._number))
            self._end()

    def _end(self) -> None:
        """End because the server said so, or is gone."""
        if not self.ended:
            self.close()
            self._ends()

    def _send(self, message: FromClient) -> None:
        try:
            self._socket.send(encode(message))  # a few messages in an empty buffer
        except OSError:
            self._end()
