"""Bytes between a notebook and its worker on this machine, against a bare TLS socket between two processes.

Both move the same bytes in turn, so that both run under the same load, into memory that the receiving process has not
touched before. The bare socket has a certificate of the same kind, and answers with one byte when all has come.
"""

from __future__ import annotations

import base64
import pickle
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from jupyter_gpu.remote import certificates, codec
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.local_worker import LocalWorker

from .lib.figures import Figure

_ROUNDS = 15
_BYTES = 100_000_000
_COMMAND = "scripts/bench remote_cell"


class _Array:
    """An array as NumPy has it: its buffer is pickled beside the rest."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return _Array, (pickle.PickleBuffer(self.data),)


def run() -> Sequence[Figure]:
    """Measure 100 MB there and back; their baseline is the bare socket."""
    data = bytearray(b"jupyter-gpu") * (_BYTES // 11)
    worker = LocalWorker()
    there, back, bare_there, bare_back = [], [], [], []
    try:
        connection = Connection(worker.address, "bench", "/")
        connection.run(f"import sys; sys.path[:] = {sys.path!r}")
        space = {"data": _Array(data)}
        with _bare_socket() as peer:
            for _ in range(_ROUNDS + 1):
                bare_there.append(_seconds_of_sending(peer, data))
                there.append(_seconds_of_push(connection, space))
                bare_back.append(_seconds_of_receiving(peer, len(data)))
                back.append(_seconds_of_pull(connection))
        connection.close()
    finally:
        worker.close()
    figures = []
    for way, ours, bare in (("there", there, bare_there), ("back", back, bare_back)):
        ratios = [one / other for one, other in zip(ours[1:], bare[1:], strict=True)]
        milliseconds = [one * 1000 for one in ours[1:]]
        name = f"remote cell: 100 MB {way}"
        figures.append(Figure.of(name, "ms", milliseconds, _COMMAND, baseline=[one * 1000 for one in bare[1:]]))
        figures.append(Figure.of(f"{name}, against a bare TLS socket", "times", ratios, _COMMAND, goal=1.2, sure=True))
        figures.append(Figure(f"{name}, the first time", "ms", ours[0] * 1000, _COMMAND, baseline=bare[0] * 1000))
    return figures


def _seconds_of_push(connection: Connection, space: dict[str, Any]) -> float:
    began = time.perf_counter()
    found = codec.measure(space, space)
    failed = connection.push(codec.chunks(space, found, found.pickled))
    assert not failed, failed
    return time.perf_counter() - began


def _seconds_of_pull(connection: Connection) -> float:
    began = time.perf_counter()
    chunks, failed, _ = connection.pull(["data"])
    assert not failed, failed
    target: dict[str, Any] = {}
    codec.load(target, chunks)
    spent = time.perf_counter() - began
    assert len(target["data"].data) == _BYTES // 11 * 11
    return spent


def _seconds_of_sending(peer: ssl.SSLSocket, data: bytearray) -> float:
    began = time.perf_counter()
    peer.sendall(b"s")
    peer.sendall(data)
    peer.recv(1)
    return time.perf_counter() - began


def _seconds_of_receiving(peer: ssl.SSLSocket, size: int) -> float:
    began = time.perf_counter()
    peer.sendall(b"r")
    _receive(peer, size)
    return time.perf_counter() - began


def _receive(peer: ssl.SSLSocket, size: int) -> bytearray:
    data = bytearray(size)
    view, at = memoryview(data), 0
    while at < size:
        at += peer.recv_into(view[at:])
    return data


@contextmanager
def _bare_socket() -> Iterator[ssl.SSLSocket]:
    own = certificates.make()
    with socket.create_server(("127.0.0.1", 0)) as listening:
        command = [sys.executable, "-m", __spec__.name, str(listening.getsockname()[1]), own.text]
        with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
            assert process.stdout is not None
            context = certificates.context(own, base64.b64decode(process.stdout.readline()), server=True)
            raw, _ = listening.accept()
            with context.wrap_socket(raw, server_side=True) as peer:
                yield peer


def _other_end(port: int, certificate: str) -> None:
    """Receive or send, as the other end says, until it ends."""
    own = certificates.make()
    print(own.text, flush=True)
    context = certificates.context(own, base64.b64decode(certificate), server=False)
    size = _BYTES // 11 * 11
    data = bytearray(size)
    with context.wrap_socket(socket.create_connection(("127.0.0.1", port))) as peer:
        while what := peer.recv(1):
            if what == b"s":
                _receive(peer, size)
                peer.sendall(b"d")
            else:
                peer.sendall(data)


if __name__ == "__main__":
    _other_end(int(sys.argv[1]), sys.argv[2])
