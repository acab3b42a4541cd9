"""A client of a share, as the gate is one, over a real socket; and a program that uses a share and writes down when.

`python -m tests.shares.client SOCKET LOG SECONDS WORK PAUSE`: works for WORK µs, rests for PAUSE µs, again and again.
Each use of the GPU is a line in LOG: when it began and ended, by CLOCK_MONOTONIC in µs. A killed program leaves a line
without an end.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import sys
import time
from pathlib import Path
from typing import Self

from jupyter_gpu_node.shares.rules.protocol import (
    FOREVER,
    Ask,
    Done,
    FromClient,
    FromServer,
    Grant,
    Memory,
    Need,
    Revoke,
    encode,
    from_server,
)

PATIENCE = 60.0
"""Seconds after which a test has failed."""
_STEP = 200
"""Microseconds between two polls of the socket: a kernel of that time."""


class Ended(Exception):
    """The server closed the connection."""


class Client:
    """One connection."""

    def __init__(self, path: Path) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            self.socket.connect(str(path))
        except BaseException:
            self.socket.close()
            raise
        self.socket.settimeout(PATIENCE)  # not before: a full queue would be an error then, and is waited for so
        self._stream = from_server()
        self._come: list[FromServer] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.socket.close()

    def send(self, *messages: FromClient) -> None:
        self.raw(b"".join(encode(message) for message in messages))

    def raw(self, data: bytes) -> None:
        try:
            self.socket.sendall(data)
        except (BrokenPipeError, ConnectionResetError):
            raise Ended from None

    def next(self) -> FromServer:
        """The next message; raises :class:`Ended`, and TimeoutError when there is none for very long."""
        while not self._come:
            self._receive()
        return self._come.pop(0)

    def poll(self, seconds: float = 0.0) -> FromServer | None:
        """Return the next message, if it comes in that time."""
        if not self._come and select.select([self.socket], [], [], seconds)[0]:
            self._receive()
        return self._come.pop(0) if self._come else None

    def grant(self, want: int = 0) -> Grant:
        """Ask for the lease, and wait for it."""
        self.send(Ask(want))
        return self.granted()

    def granted(self) -> Grant:
        message = self.next()
        assert isinstance(message, Grant), message
        return message

    def another(self, after: int) -> int:
        """Wait for a lease after that one; what is said of that one crossed with its end."""
        while not isinstance(message := self.next(), Grant) or message.number <= after:
            assert not isinstance(message, Memory), message
        return message.number

    def revoked(self) -> int:
        """Wait until the GPU is asked back; extensions come before."""
        while isinstance(message := self.next(), Grant):
            pass
        assert isinstance(message, Revoke), message
        return message.number

    def need(self, size: int) -> Memory:
        self.send(Need(size))
        message = self.next()
        assert isinstance(message, Memory), message
        return message

    def ended(self) -> bool:
        """Wait for the end of the connection, whatever comes before."""
        with contextlib.suppress(Ended):
            while True:
                self.next()
        return True

    def _receive(self) -> None:
        try:
            data = self.socket.recv(4096)
        except ConnectionResetError:
            data = b""
        if not data:
            raise Ended
        self._come += self._stream.feed(data)


def now() -> int:
    return time.monotonic_ns() // 1000


class Program:
    """Uses its share: works, rests, and connects again when the server is gone."""

    def __init__(self, path: Path, log: int, work: int, pause: int) -> None:
        self._path, self._log, self._work, self._pause = path, log, work, pause

    def run(self, seconds: float) -> None:
        end = now() + int(seconds * 1e6)
        while now() < end:
            try:
                with Client(self._path) as client:
                    self._converse(client, end)
            except (Ended, ConnectionError, FileNotFoundError):
                time.sleep(0.01)

    def _converse(self, client: Client, end: int) -> None:
        given_back = 0
        while now() < end:
            left = self._work
            client.send(Ask(left))
            while left > 0:
                message = client.next()
                if isinstance(message, Grant) and message.number > given_back:  # else it crossed with our answer
                    left = self._use(client, message, left)
                    given_back = message.number
            time.sleep(self._pause / 1e6)

    def _use(self, client: Client, grant: Grant, left: int) -> int:
        """Work in that lease; return the work that is left."""
        begin = now()
        os.write(self._log, b"%d " % begin)
        until = FOREVER if grant.time == FOREVER else begin + grant.time
        used = begin
        try:
            while left > 0 and used < until:
                message = client.poll(min(_STEP, left) / 1e6)
                if isinstance(message, Revoke):
                    break
                if isinstance(message, Grant):
                    until = now() + message.time
                left -= now() - used
                used = now()
        finally:
            os.write(self._log, b"%d\n" % used)
        client.send(Done(left if left > 0 else None, used - begin, grant.number))
        return left


def uses(log: Path, killed: int | None = None) -> list[tuple[int, int]]:
    """The log of a program; `killed`: the time when it was killed, if it was."""
    found = []
    for line in log.read_text().splitlines():
        begin, *end = (int(part) for part in line.split())
        found.append((begin, end[0] if end else killed or begin))
    return found


def overlaps(shares: dict[str, list[tuple[int, int]]]) -> list[tuple[str, int, str, int]]:
    """Return the times at which two shares had the GPU: there must be none."""
    every = sorted((begin, end, share) for share, times in shares.items() for begin, end in times if begin < end)
    found = []
    last: tuple[int, str] | None = None
    for begin, end, share in every:
        if last is not None and last[1] != share and begin < last[0]:
            found.append((last[1], last[0], share, begin))
        if last is None or end > last[0]:
            last = (end, share)
    return found


if __name__ == "__main__":
    where, file, seconds, work, pause = sys.argv[1:]
    log = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    Program(Path(where), log, int(work), int(pause)).run(float(seconds))
