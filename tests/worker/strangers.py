"""Strangers to a worker, and somebody between it and its notebook who writes down what the notebook sends."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from collections.abc import Iterator
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from jupyter_gpu.remote.first_process import WorkerAddress

GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x01CURVE" + bytes(47)
"""The first bytes of each peer with CurveZMQ."""
KINDS = (zmq.DEALER, zmq.SUB, zmq.DEALER, zmq.DEALER)
"""The sockets that fit the ports of one kernel: shell, iopub, stdin, control."""
PATIENCE = 20
"""Seconds for the answer to a handshake."""


def refused(address: WorkerAddress, port: int, kind: int) -> bool:
    """Tell whether a socket is refused for its key, before a message arrives; fails where neither way is answered."""
    with zmq.Context() as context, address.unconnected(context, kind) as made:
        by_key = _answer(made, address.address, port, zmq.EVENT_HANDSHAKE_FAILED_AUTH)
    return by_key == zmq.EVENT_HANDSHAKE_FAILED_AUTH


def has_no_key(host: str, port: int, kind: int) -> bool:
    """Tell whether a socket without any key is refused, and told nothing."""
    with zmq.Context() as context, context.socket(kind) as made:
        answer = _answer(made, host, port, zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL)
        return answer == zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL and not made.poll(0)


def _answer(made: zmq.Socket[Any], host: str, port: int, no: int) -> int:
    """Connect a socket, and return what its handshake comes to: that it succeeded, or ``no``."""
    heard: list[int] = []
    until = time.monotonic() + PATIENCE
    monitor = made.get_monitor_socket()  # before it connects: each of the two is told once
    try:
        made.connect(f"tcp://{host}:{port}")
        while not (heard and heard[-1] in (no, zmq.EVENT_HANDSHAKE_SUCCEEDED)):
            left = until - time.monotonic()
            assert left > 0, f"Port {port} does not answer. Seen so far: {heard[:9]}"
            if monitor.poll(int(1000 * left) + 1):
                heard.append(recv_monitor_message(monitor)["event"])
    finally:
        made.disable_monitor()  # first: ZeroMQ waits for one that reads
        monitor.close(linger=0)
    return heard[-1]


@contextlib.contextmanager
def overheard(port: int, host: str = "127.0.0.1") -> Iterator[tuple[int, list[bytes]]]:
    """Yield a port whose one connection goes on to another port, and all that came there; wait for its end."""
    sent: list[bytes] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def listen() -> None:
            with listener.accept()[0] as near, socket.create_connection((host, port)) as far:
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


def said_to(host: str, port: int, *sent: bytes) -> bytes:
    """Say some bytes to a port, and return all that is answered until the other end closes."""
    with socket.create_connection((host, port), PATIENCE) as connection:
        with contextlib.suppress(OSError):
            for data in sent:
                connection.sendall(data)
        return received(connection)


def said_by_tls(host: str, port: int, context: ssl.SSLContext, data: bytes) -> bytes:
    """Say some bytes by TLS, and return all that is answered inside it until the other end closes."""
    with (
        contextlib.suppress(OSError),  # an alert: after the handshake, as this end sees it
        context.wrap_socket(socket.create_connection((host, port), PATIENCE)) as connection,
    ):
        connection.sendall(data)
        return received(connection)
    return b""
