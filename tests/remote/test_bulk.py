"""Messages by TLS between two ends that know each other's certificate, and what a stranger gets."""

from __future__ import annotations

import os
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model import strict
from jupyter_gpu.remote import bulk, certificates
from jupyter_gpu.remote.bulk import MAX_PARTS, BulkClient, Receiving, Sending, Transfer, TransferBroken

OURS, THEIRS, STRANGE = certificates.make(), certificates.make(), certificates.make()


@contextmanager
def pair() -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Connect two ends by TLS; neither blocks."""
    here, there = socket.socketpair()
    server = certificates.context(THEIRS, OURS.der, server=True)
    greeting = threading.Thread(target=lambda: made.append(server.wrap_socket(there, server_side=True)))
    made: list[ssl.SSLSocket] = []
    greeting.start()
    with certificates.context(OURS, THEIRS.der, server=False).wrap_socket(here) as client:
        greeting.join()
        with made[0] as other:
            client.setblocking(False)
            other.setblocking(False)
            yield client, other


@pytest.fixture
def ends() -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Connect two ends for one test."""
    with pair() as both:
        yield both


@pytest.fixture(scope="module")
def kept() -> Iterator[tuple[ssl.SSLSocket, ssl.SSLSocket]]:
    """Connect two ends that stay connected: each message must end where the next one begins."""
    with pair() as both:
        yield both


def move(ends: tuple[ssl.SSLSocket, ssl.SSLSocket], sending: Transfer, receiving: Transfer) -> None:
    """Move a message, step by step."""
    while not (sending.complete and receiving.complete):
        sending.step(ends[0])
        receiving.step(ends[1])
        assert sending.error + receiving.error == ""


@given(parts=st.lists(st.binary(max_size=40_000), max_size=6))
def test_what_is_sent_is_received(kept: tuple[ssl.SSLSocket, ssl.SSLSocket], parts: list[bytes]) -> None:
    """Also nothing, and parts without a byte; and the connection can be used again."""
    sending, receiving = Sending(parts), Receiving()
    move(kept, sending, receiving)
    assert [bytes(part) for part in receiving.parts] == parts
    assert sending.moved == sending.total == receiving.total == receiving.moved
    assert sending.stopped is receiving.stopped is False


def test_large_part_has_memory_that_can_be_written(ends: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    """A process that is forked has a copy."""
    data = os.urandom(3 * 1024**2)
    receiving = Receiving()
    move(ends, Sending([data]), receiving)
    (part,) = receiving.parts
    assert bytes(part) == data
    if not (child := os.fork()):
        memoryview(part)[0] = 1 ^ data[0]
        os._exit(0)
    os.waitpid(child, 0)
    memoryview(part)[1] = 1 ^ data[1]
    assert part[:3] == bytes([data[0], 1 ^ data[1], data[2]])


def test_connection_that_ends_breaks_a_transfer(ends: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    """At either end, with a reason."""
    sending, receiving = Sending([bytes(32 * 1024**2)]), Receiving()
    sending.step(ends[0])
    receiving.step(ends[1])
    assert receiving.moved
    ends[0].close()
    with pytest.raises(TransferBroken, match=r"."):
        receiving.finish(ends[1])
    assert receiving.stopped
    with pytest.raises(TransferBroken, match=r"."):
        Sending([bytes(32 * 1024**2)]).finish(ends[1])


def test_silence_breaks_a_transfer(ends: tuple[ssl.SSLSocket, ssl.SSLSocket], monkeypatch: pytest.MonkeyPatch) -> None:
    """As of a node that has vanished."""
    monkeypatch.setattr(bulk, "SILENCE", 0.05)
    with pytest.raises(TransferBroken, match="seconds"):
        Receiving().finish(ends[1])
    with pytest.raises(TransferBroken, match="seconds"):
        Sending([bytes(64 * 1024**2)]).finish(ends[0])


@pytest.mark.parametrize(
    ("head", "why"),
    [
        ((MAX_PARTS + 1).to_bytes(4), "parts"),
        ((1).to_bytes(4) + (2**62).to_bytes(8), "emory"),
        ((1).to_bytes(4) + (2**64 - 1).to_bytes(8), "emory"),
    ],
)
def test_sizes_that_are_no_sizes_are_refused(ends: tuple[ssl.SSLSocket, ssl.SSLSocket], head: bytes, why: str) -> None:
    """Nothing is taken for them."""
    ends[0].send(head)
    receiving = Receiving()
    with pytest.raises(TransferBroken, match=why):
        receiving.finish(ends[1])


def dialed(peer: bytes) -> Callable[[int], None]:
    """Return a client that shows its own certificate and expects one of the server."""

    def dial(port: int) -> None:
        client = BulkClient()
        client.connect("127.0.0.1", port, OURS, peer)
        client.close()

    return dial


def test_client_refuses_another_server() -> None:
    """One with another certificate, and one without TLS."""
    server = certificates.context(STRANGE, OURS.der, server=True)

    def other(raw: socket.socket) -> None:
        with pytest.raises(ssl.SSLError):
            server.wrap_socket(raw, server_side=True)
        raw.close()

    def plain(raw: socket.socket) -> None:
        raw.recv(1000)
        raw.sendall(b"HTTP/1.0 200 OK\r\n\r\n")
        raw.close()

    for answer in (other, plain):
        with socket.create_server(("127.0.0.1", 0)) as listening:
            thread = threading.Thread(target=lambda: answer(listening.accept()[0]))  # noqa: B023 - joined below
            thread.start()
            with pytest.raises(ssl.SSLError):
                dialed(THEIRS.der)(listening.getsockname()[1])
            thread.join()


def test_idle_connection_that_ended_is_noticed(ends: tuple[ssl.SSLSocket, ssl.SSLSocket]) -> None:
    """Before a message is sent by it."""
    client = BulkClient()
    assert not client.is_open
    client.socket = ends[0]
    assert client.is_open
    ends[1].close()
    assert not client.is_open


@pytest.mark.parametrize("value", ["no base64!", 7, None, "x" * 5000])
def test_text_that_is_no_certificate_is_refused(value: Any) -> None:
    """With its field."""
    with pytest.raises(strict.FieldError, match="certificate"):
        certificates.read_certificate(value, "certificate")


def test_key_of_a_certificate_is_not_shown() -> None:
    """Neither in its representation nor in what is sent."""
    assert b"PRIVATE KEY" in OURS.pem
    assert "PRIVATE" not in repr(OURS)
    assert certificates.read_certificate(OURS.text, "certificate") == OURS.der
