"""Somebody between a notebook and its worker, who writes down what the notebook sends."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator


@contextlib.contextmanager
def overheard(port: int) -> Iterator[tuple[int, list[bytes]]]:
    """Yield a port whose one connection goes on to another port, and all that came there; wait for its end."""
    sent: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            with listener.accept()[0] as near, socket.create_connection(("127.0.0.1", port)) as far:
                back = threading.Thread(target=pump, args=(far, near, []))
                back.start()
                pump(near, far, sent)
                back.join()

        thread = threading.Thread(target=listen)
        thread.start()
        yield listener.getsockname()[1], sent
        thread.join()


def pump(source: socket.socket, target: socket.socket, seen: list[bytes]) -> None:
    """Hand on all bytes."""
    with contextlib.suppress(OSError):
        while data := source.recv(65536):
            seen.append(data)
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)


def received(connection: socket.socket) -> bytes:
    """Return all that comes until the other end closes."""
    found = b""
    with contextlib.suppress(ConnectionResetError):
        while data := connection.recv(65536):
            found += data
    return found
