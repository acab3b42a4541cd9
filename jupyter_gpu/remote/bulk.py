"""Large objects by TLS, beside the channels of a connection: CurveZMQ is slower than TLS by more than the half.

The bytes of one message, and nothing else, travel from one end to the other: their number and sizes, then all of them.
They are sent from the memory where they are, and received where they stay. Each end moves what is possible now
(`Transfer.step`), so the notebook's end goes on with its other channels meanwhile. A transfer that stops in the middle
ends its connection, as nobody knows where the next one would begin; the next large object opens another one.
"""

from __future__ import annotations

import errno
import mmap
import os
import select
import socket
import ssl
import struct
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Any

from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote import certificates
from jupyter_gpu.remote.certificates import Certificate

LARGE = 16 * 1024**2
"""Bytes of a message from which it is sent by TLS."""
STEP = 4 * 1024**2
"""Bytes that one step moves, about: other channels wait meanwhile."""
PATIENCE = 10.0
"""Seconds that the other end may take to connect."""
SILENCE = 30.0
"""Seconds without a byte until a transfer counts as broken."""
MAX_PARTS = 1024**2
"""Parts of a message."""
_PIECE = 1024**2
_OWN_PAGES = 1024**2
"""Bytes from which a part has pages of its own, which nothing writes before its bytes come."""
_COUNT, _SIZE = 4, 8
"""Bytes of the number of parts, and of the size of each."""


class TransferBroken(Exception):
    """The error of a transfer whose connection ended, with the reason."""


def total_bytes(parts: Sequence[Any]) -> int:
    """Return the bytes of the parts of a message."""
    return sum(memoryview(part).nbytes for part in parts)


def is_large(parts: Sequence[Any]) -> bool:
    """Tell whether a message with some parts is sent by TLS."""
    return total_bytes(parts) >= LARGE


def prepared(made: socket.socket) -> None:
    """Set what both ends set: nothing waits for more to be sent, and an end that vanished is noticed."""
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    made.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, int(SILENCE))
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(SILENCE * 1000))


class Transfer:
    """A message that is sent or received by a connection that does not block."""

    wants: int
    """The event that its socket must be ready for: select.POLLIN or select.POLLOUT."""

    def __init__(self, views: Iterator[memoryview]) -> None:
        self.moved = 0
        """Bytes."""
        self.total = 0
        """Bytes; 0 while that is not known."""
        self.complete = False
        self.error = ""
        """Why it broke; empty if it did not."""
        self._views = views
        self._view, self._at = next(views), 0

    @property
    def stopped(self) -> bool:
        """Whether it has begun and is not complete: its connection is of no use any more."""
        return not self.complete and (self.moved > 0 or bool(self.error))

    def step(self, connection: ssl.SSLSocket) -> None:
        """Move what can be moved now, up to some bytes."""
        until = self.moved + STEP
        try:
            while not self.complete and (self.moved < until or connection.pending()):
                moved = self._move(connection, self._view[self._at : self._at + _PIECE])
                self.moved += moved
                self._at += moved
                if self._at == len(self._view):
                    following = next(self._views, None)
                    self.complete = following is None
                    self._view, self._at = following or self._view, 0
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            pass
        except (OSError, OverflowError) as error:
            self.error = str(getattr(error, "strerror", None) or error)

    def finish(self, connection: ssl.SSLSocket) -> None:
        """Move all that is left, and wait for it. Raises `TransferBroken`."""
        poller = select.poll()
        poller.register(connection, self.wants)
        while not self.complete:
            if not poller.poll(SILENCE * 1000):
                raise TransferBroken(gettext("nothing came or went for %1 seconds", int(SILENCE)))
            self.step(connection)
            if self.error:
                raise TransferBroken(self.error)

    def _move(self, connection: ssl.SSLSocket, view: memoryview) -> int:
        """Move a piece or a part of it; return its bytes."""
        raise NotImplementedError


class Sending(Transfer):
    """A message that is sent, from the memory where it is."""

    wants = select.POLLOUT

    def __init__(self, parts: Sequence[Any]) -> None:
        views = [memoryview(part).cast("B") for part in parts]
        sizes = [view.nbytes for view in views]
        head = memoryview(struct.pack(f"!I{len(sizes)}Q", len(sizes), *sizes))
        super().__init__(iter([head, *(view for view in views if view)]))
        self.total = len(head) + sum(sizes)

    def _move(self, connection: ssl.SSLSocket, view: memoryview) -> int:
        return connection.send(view)


class Receiving(Transfer):
    """A message that is received, into memory of its own."""

    wants = select.POLLIN

    def __init__(self) -> None:
        self.parts: list[Any] = []
        """The parts that have come, in memory that can be written."""
        super().__init__(self._rooms())

    def _rooms(self) -> Iterator[memoryview]:
        """Yield room for what comes next. Raises OSError if there is none."""
        yield (count := memoryview(bytearray(_COUNT)))
        parts = int.from_bytes(count)
        if parts > MAX_PARTS:
            raise OverflowError(gettext("it has %1 parts, more than %2", parts, MAX_PARTS))
        self.total = _COUNT
        if parts:
            yield (head := memoryview(bytearray(parts * _SIZE)))
            sizes = struct.unpack(f"!{parts}Q", head)
            self.total += len(head) + sum(sizes)
            for size in sizes:
                self.parts.append(_memory(size))
                if size:
                    yield memoryview(self.parts[-1])

    def _move(self, connection: ssl.SSLSocket, view: memoryview) -> int:
        if not (got := connection.recv_into(view)):
            raise ConnectionResetError(None, gettext("the other end has closed it"))
        return got


def _memory(size: int) -> Any:
    """Return memory for some bytes; raises OSError. Large ones have pages of their own, not written twice."""
    if size < _OWN_PAGES:
        return bytearray(size)
    try:
        made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)  # a forked process has a copy
    except OverflowError:
        raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)) from None
    with suppress(OSError):  # a kernel without them
        made.madvise(mmap.MADV_HUGEPAGE)
    return made


class BulkClient:
    """The notebook's end of a connection for large objects; ``lock`` is held until its message is done."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.socket: ssl.SSLSocket | None = None
        self.usable = certificates.can_be_made()
        """Whether a connection may be tried: the way there may be closed for ever."""

    @property
    def is_open(self) -> bool:
        """Whether there is a connection, as far as is known: nothing but its end comes unasked."""
        if self.socket is not None and select.select([self.socket], [], [], 0)[0]:
            self.close()
        return self.socket is not None

    def connect(self, address: str, port: int, own: Certificate, peer: bytes) -> None:
        """Connect to the one peer; raises OSError."""
        self.close()
        context = certificates.context(own, peer, server=False)
        raw = socket.create_connection((address, port), PATIENCE)
        prepared(raw)
        self.socket = context.wrap_socket(raw)
        self.socket.setblocking(False)

    def close(self) -> None:
        """Close the connection."""
        made, self.socket = self.socket, None
        if made is not None:
            made.close()
