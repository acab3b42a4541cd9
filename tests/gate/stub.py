"""The server's end of a socket, for tests that send each message themselves: real sockets, the real protocol."""

import contextlib
import select
import socket
import threading
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Self, TypeVar

from jupyter_gpu_node.shares.rules.protocol import (
    FOREVER,
    NO_LIMIT,
    Ask,
    Done,
    FromClient,
    FromServer,
    Grant,
    Memory,
    Need,
    encode,
    from_client,
)

Kind = TypeVar("Kind", Ask, Done, Need)

LONG = 60.0
"""Seconds: nothing takes so long, on a machine that is busy either."""


def _asks(message: FromClient) -> bool:
    """Return whether a message asks for a lease."""
    return isinstance(message, Ask) or (isinstance(message, Done) and message.number > 0 and message.want is not None)


class Connection:
    """One connected process. NEED is answered automatically, by `limit`, unless a test turns that off."""

    def __init__(self, one: socket.socket) -> None:
        self._socket = one
        self._socket.settimeout(LONG)
        self._stream = from_client()
        self._came: list[FromClient] = []
        self.lease = 0
        self.held = False
        self.size = 0
        self.limit = NO_LIMIT
        self.others = 0
        self.answers = True
        self.needs: list[int] = []

    def say(self, message: FromServer) -> None:
        """Send a message."""
        self._socket.sendall(encode(message))

    def raw(self, data: bytes) -> None:
        """Send bytes that need not be a message."""
        self._socket.sendall(data)

    def grant(self, time: int = 1_000_000, *, ahead: bool = False) -> int:
        """Grant a new lease and return its number."""
        self.lease += 1
        self.held = True
        self.say(Grant(time, self.lease, ahead=ahead))
        return self.lease

    def next(self) -> FromClient:
        """Return the next message; raise EOFError at the end of the connection."""
        while not self._came:
            data = self._socket.recv(4096)
            if not data:
                raise EOFError
            self._came += self._stream.feed(data)
        message = self._came.pop(0)
        if isinstance(message, Done) and message.number == self.lease:
            self.held = False
        if isinstance(message, Need):
            self.needs.append(message.size)
            if self.answers:
                self._answer(message.size)
        return message

    def _answer(self, size: int) -> None:
        if len(self.needs) == 1 or size <= self.size or size + self.others <= self.limit:
            self.size = size
        self.say(Memory(self.size, self.limit, self.size + self.others))

    def expect(self, kind: type[Kind], fits: Callable[[Kind], bool] = lambda _: True) -> Kind:
        """Return the next message of that kind that fits, skipping others."""
        while True:
            message = self.next()
            if isinstance(message, kind) and fits(message):
                return message

    def until(self, condition: Callable[[], bool], time: int = 60_000_000) -> int:
        """Grant what is asked for until the condition holds during a lease; return the number of that lease.

        The lease's end may be on its way: no later message is read.
        """
        while not (condition() and self.held):
            if self._comes():
                self._given(time)
        return self.lease

    def charged_until(self, condition: Callable[[], bool], time: int = 60_000_000) -> int:
        """Grant what is asked for until the condition holds and no lease is held; return the work measured in all."""
        self.grant(time)
        measured = 0
        while self.held or not condition():
            if self._comes():
                message = self._given(time)
                measured += message.measured if isinstance(message, Done) else 0
        return measured

    def ends(self) -> None:
        """Skip everything up to the end of the connection."""
        with contextlib.suppress(EOFError):
            while True:
                self.next()

    def is_silent(self, seconds: float) -> bool:
        """Return whether nothing arrives for so long, after the messages that were received already."""
        return not select.select([self._socket], [], [], seconds)[0]

    def _comes(self) -> bool:
        """Wait a moment for a message. Small copies send none, so a condition may become true without one."""
        return bool(self._came) or bool(select.select([self._socket], [], [], 0.002)[0])

    def _given(self, time: int, *, ahead: bool = False) -> FromClient:
        """Read the next message and grant what it asks for."""
        message = self.next()
        if _asks(message):
            self.grant(time, ahead=ahead)
        return message

    def serve(self, time: int = FOREVER, ahead: bool = False) -> None:
        """Grant everything that is asked for, until the connection ends."""
        try:
            while True:
                self._given(time, ahead=ahead)
        except (EOFError, OSError):
            self.close()

    def close(self) -> None:
        """Close the connection, even if another thread reads from it."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


class Stub:
    """Listens where the gate looks for the server of one GPU."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.settimeout(LONG)
        path.unlink(missing_ok=True)
        self._listener.bind(str(path))
        self._listener.listen(64)
        self._accepted: list[Connection] = []
        self._threads: list[threading.Thread] = []

    def accept(self) -> Connection:
        """Accept the next process. Skip one that meanwhile found another socket file: it disconnects silently."""
        while True:
            one = self._listener.accept()[0]
            one.settimeout(LONG)
            with contextlib.suppress(ConnectionResetError):
                if one.recv(1, socket.MSG_PEEK):
                    break
            one.close()
        self._accepted.append(Connection(one))
        return self._accepted[-1]

    def keep_granting(self, time: int = FOREVER, *, ahead: bool = False, limit: int = NO_LIMIT) -> None:
        """Grant every process what it asks for, until the end; ``ahead``: as if no other share were there."""

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connection = self.accept()
                    connection.limit = limit
                    threads.append(threading.Thread(target=connection.serve, args=(time, ahead)))
                    threads[-1].start()

        threads = self._threads
        threads.append(threading.Thread(target=accept))
        threads[0].start()

    def close(self) -> None:
        """End everything, as the end of the server's process would."""
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        for thread in self._threads[:1]:
            thread.join()
        for connection in self._accepted:
            connection.close()
        for thread in self._threads:
            thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
