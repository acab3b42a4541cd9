"""The worker's end of a connection for large objects: it listens only until its notebook has connected.

So there is no port that a stranger could try at other times, and one port can serve all kernels of a worker in turn.
"""

from __future__ import annotations

import socket
import ssl
import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, InvalidStateError
from contextlib import suppress
from typing import Any

from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote import certificates
from jupyter_gpu.remote.bulk import PATIENCE, Receiving, Sending, Transfer, TransferBroken, prepared

HANDSHAKE = 5.0
"""Seconds that a peer may take to prove its key."""
TURN = 5.0
"""Seconds that a kernel waits for its turn at the port."""
STRANGERS = 16
"""Handshakes at a time; more connections are closed at once."""


class BulkServer:
    """The worker's end; it has one connection at a time."""

    def __init__(self) -> None:
        self._entrance: Entrance | None = None

    def listen(self, address: str, peer: bytes, port: int = 0) -> tuple[int, str]:
        """Expect the peer with a certificate, in place of a connection before; return the port and our certificate.

        ``port``: that of all kernels of the worker, for which one waits until another's peer has connected. Raises
        `OSError` if that takes too long.
        """
        self.close()
        own = certificates.make()
        context = certificates.context(own, peer, server=True)
        until = time.monotonic() + TURN
        while self._entrance is None:
            try:
                self._entrance = Entrance(address, context, port)
            except OSError:
                if time.monotonic() > until:
                    raise
                time.sleep(0.02)
        return self._entrance.port, own.text

    def receive(self) -> list[Any]:
        """Return the parts of the next message. Raises `TransferBroken`."""
        self._finish(receiving := Receiving())
        return receiving.parts

    def send(self, parts: Sequence[Any]) -> None:
        """Send a message. Raises `TransferBroken`."""
        self._finish(Sending(parts))

    def close(self) -> None:
        """Close the connection, or expect none any more."""
        entrance, self._entrance = self._entrance, None
        if entrance is not None:
            entrance.close()

    def _finish(self, transfer: Transfer) -> None:
        try:
            if self._entrance is None:
                raise TransferBroken(gettext("there is no connection"))
            transfer.finish(self._entrance.connection())
        except BaseException:  # also an interrupt: the rest of the message would be taken for the next one
            self.close()
            raise


class Entrance:
    """A port at which one peer is expected."""

    def __init__(self, address: str, context: ssl.SSLContext, port: int = 0) -> None:
        self._context = context
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._listening = socket.create_server((address.strip("[]"), port), family=family, backlog=STRANGERS)
        self.port: int = self._listening.getsockname()[1]
        self._peer: Future[ssl.SSLSocket] = Future()
        self._room = threading.BoundedSemaphore(STRANGERS)
        threading.Thread(target=self._accept, name="jupyter-gpu-bulk", daemon=True).start()

    def connection(self) -> ssl.SSLSocket:
        """Return the connection of the peer; raises `TransferBroken` if it did not come."""
        try:
            return self._peer.result(PATIENCE)
        except TimeoutError:
            raise TransferBroken(gettext("the notebook did not connect")) from None

    def close(self) -> None:
        """Close it, and the connection of the peer."""
        if not self._peer.cancel():
            self._peer.result().close()
        self._stop()

    def _accept(self) -> None:
        until = time.monotonic() + PATIENCE
        with self._listening, suppress(OSError):  # the time is over, or `_stop`
            while (left := until - time.monotonic()) > 0:
                self._listening.settimeout(left)
                raw, _ = self._listening.accept()
                if self._room.acquire(blocking=False):
                    threading.Thread(target=self._greet, args=(raw,), name="jupyter-gpu-bulk", daemon=True).start()
                else:
                    raw.close()

    def _greet(self, raw: socket.socket) -> None:
        try:
            raw.settimeout(HANDSHAKE)
            made = self._context.wrap_socket(raw, server_side=True)
        except OSError:  # a stranger
            raw.close()
            return
        finally:
            self._room.release()
        try:
            prepared(made)
            made.setblocking(False)
            self._peer.set_result(made)
        except (InvalidStateError, OSError):  # nobody waits for it any more
            made.close()
        else:
            self._stop()

    def _stop(self) -> None:
        """Have no more connections accepted."""
        with suppress(OSError):  # it is closed
            self._listening.shutdown(socket.SHUT_RDWR)
