"""Every port of a worker's pod, with a true client of each and strangers: no key, another, an old one, replay."""

from __future__ import annotations

import base64
import contextlib
import random
import socket
import ssl
import threading
from ast import literal_eval
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import zmq
from jupyter_client.session import Session

from jupyter_gpu.dask.rules.targets import OFFER
from jupyter_gpu.dask.rules.words import Attend, Attending
from jupyter_gpu.model.reservation import ReservationOwner
from jupyter_gpu.remote import PYTHON, certificates
from jupyter_gpu.remote.certificates import Certificate
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.first_process import WorkerAddress, ask
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import Kill, Killed, Refused, Start, Started, read
from jupyter_gpu.worker import unreadable
from tests.worker.strangers import (
    GREETING,
    KINDS,
    PATIENCE,
    has_no_key,
    overheard,
    refused,
    said_by_tls,
    said_to,
)

HELLO = 64 + 200
"""Bytes that a worker's port says before a key is proved, at most: its greeting, and a welcome."""
HANDSHAKE = 2048
"""Bytes of the worker's part of a handshake of TLS, at most; none of its own follow if the other part is an old one."""
NAME = "ports"
COUNT = "runs = globals().get('runs', 0) + 1"
GARBAGE = 16
"""Connections with a MiB of garbage each, to each port."""


def listening(pid: int) -> tuple[set[int], set[int]]:
    """Return the TCP ports at which somebody listens in the network of a process: to everybody, on loopback alone."""
    everybody: set[int] = set()
    inside: set[int] = set()
    for name in ("tcp", "tcp6"):
        for line in Path(f"/proc/{pid}/net/{name}").read_text().splitlines()[1:]:
            where, state = line.split()[1], line.split()[3]
            host, _, port = where.partition(":")
            if state == "0A":
                (inside if host == "0100007F" else everybody).add(int(port, 16))
    return everybody, inside


def kind_of(port: int) -> int:
    """Return the kind of ZeroMQ's socket that fits a port of a worker's pod."""
    return KINDS[(port - control.PORT - 1) % len(KINDS)] if port > control.PORT else zmq.DEALER


class EveryPort:
    """A kernel of a worker that has all its ports open, and what its clients said to each.

    ``way``: with the keys of now; ``old``: with those of before. ``owner``: the process that the kernel is for.
    """

    def __init__(self, way: WorkerAddress, old: WorkerAddress, owner: ReservationOwner) -> None:
        assert way.port == control.PORT
        self.way, self.old, self.host = way, old, way.address
        public, secret = (key.decode() for key in zmq.curve_keypair())
        self.other = replace(way, public=public, secret=secret)
        self.recorded: dict[int, bytes] = {}
        with self._recording(way.port) as through:
            assert ask(replace(way, address="127.0.0.1", port=through), Kill(NAME)) == Killed(NAME)
        started = ask(way, Start(NAME, "/", PYTHON, owner))
        assert isinstance(started, Started)
        self.started = started
        self.connection = Connection(way, NAME, "/")
        self._record()
        self._dask = certificates.make()
        self.dask = self._attend()

    def close(self) -> None:
        """End the kernel."""
        self.connection.kill()
        self.connection.close()

    def said(self, expression: str) -> str:
        """Return what an expression is in the kernel."""
        content = {"code": "", "silent": True, "user_expressions": {"answer": expression}, "stop_on_error": False}
        answer = self.connection.request("execute_request", content)["content"]["user_expressions"]["answer"]
        return str(literal_eval(answer["data"]["text/plain"]))

    @contextlib.contextmanager
    def _recording(self, port: int) -> Iterator[int]:
        with overheard(port, self.host) as (through, sent):
            yield through
        self.recorded[port] = b"".join(sent)

    def _record(self) -> None:
        """Write down what a true client says to each port of the kernel; to its shell a request that counts itself."""
        known = replace(self.way, address="127.0.0.1")
        ports = (self.started.iopub, self.started.stdin, self.started.control)
        for port in ports:
            with self._recording(port) as through:
                assert not refused(known, through, kind_of(port))
        content = {"code": COUNT, "silent": True, "stop_on_error": False}
        with (
            self._recording(self.started.shell) as through,
            zmq.Context() as context,
            known.socket(context, zmq.DEALER, through) as shell,
        ):
            Session(key=self.started.key.encode()).send(shell, "execute_request", content)
            assert shell.poll(1000 * PATIENCE)
        assert self.said("str(runs)") == "1"

    def _attend(self) -> int:
        """Have Dask's port opened, and write down what the notebook's end says there; return it."""
        word = Attend(base64.b64encode(self._dask.pem).decode(), "w1").dump().decode()
        call = (
            f"__import__('jupyter_gpu.dask.attendant').dask.attendant.take({word!r}, get_ipython().kernel.parent.run)"
        )
        port = read(self.said(call).encode(), Attending).port
        with self._recording(port) as through:
            assert self._offers("127.0.0.1", through)
        return port

    def _offers(self, host: str, port: int) -> bool:
        """Tell whether the true end of Dask is let in: its offer stands."""
        context = certificates.context(self._dask, self._dask.der, server=False)
        with context.wrap_socket(socket.create_connection((host, port), PATIENCE)) as client:
            client.sendall(OFFER)
            client.settimeout(1)
            with contextlib.suppress(TimeoutError):
                client.recv(1)
                return False
        return True

    def _expect(self, own: Certificate) -> bytes:
        """Have the port for large objects opened to a certificate; return that of the other end."""
        reply = self.connection.request("gpu_bulk", {"certificate": own.text})["content"]
        self.bulk: int = reply["port"]
        return certificates.read_certificate(reply["certificate"], "certificate")

    def refuse_strangers(self, pid: int) -> set[int]:
        """See that every port in the network of a process refuses each kind of stranger; return those that are open.

        The one for large objects lets its one peer in afterwards.
        """
        before, now = certificates.make(), certificates.make()
        theirs = self._expect(before)
        with self._recording(self.bulk) as through:
            _connected("127.0.0.1", through, before, theirs).close()
            theirs = self._expect(now)  # the worker's end hangs up
        ports, inside = listening(pid)
        self._tls_refuses(self.bulk, (certificates.make(), before), theirs)
        _connected(self.host, self.bulk, now, theirs).close()
        self._tls_refuses(self.dask, (certificates.make(), before), self._dask.der)
        assert self._offers(self.host, self.dask)
        for port in ports - {self.bulk, self.dask}:
            for stranger in (self.other, self.old):
                assert refused(stranger, port, kind_of(port)), port
            assert has_no_key(self.host, port, kind_of(port)), port
            if port in self.recorded:
                assert len(said_to(self.host, port, self.recorded[port])) < HELLO
        for port in inside:  # ipykernel's own, for its child processes
            with contextlib.suppress(ConnectionRefusedError), socket.create_connection((self.host, port), PATIENCE):
                raise AssertionError(f"{port} can be reached from other pods.")
        return ports

    def _tls_refuses(self, port: int, strangers: Sequence[Certificate], theirs: bytes) -> None:
        nobody = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        nobody.check_hostname, nobody.verify_mode = False, ssl.CERT_NONE
        for context in (nobody, *(certificates.context(one, theirs, server=False) for one in strangers)):
            assert said_by_tls(self.host, port, context, OFFER) == b""
        assert len(said_to(self.host, port, b"GET / HTTP/1.0\r\n\r\n")) < HELLO
        assert len(said_to(self.host, port, self.recorded[port])) < HANDSHAKE


def _connected(host: str, port: int, own: Certificate, theirs: bytes) -> ssl.SSLSocket:
    context = certificates.context(own, theirs, server=False)
    made = context.wrap_socket(socket.create_connection((host, port), PATIENCE))
    made.settimeout(0.5)
    with contextlib.suppress(TimeoutError):
        assert made.recv(1), "It was refused."
    return made


class Flood(threading.Thread):
    """Garbage of strangers to some ports, and odd words of the notebook's end to the first one, in threads."""

    def __init__(self, way: WorkerAddress, ports: set[int], words: int) -> None:
        super().__init__(name="flood")
        self._way, self._ports, self._words = way, ports, words
        self._chance = random.Random(1)
        self.failed: BaseException | None = None

    def run(self) -> None:
        """Send all of it."""
        other = threading.Thread(target=self._garbage)
        other.start()
        try:
            self._some_by_each()
            self._all_by_one()
        except BaseException as error:  # raised by the test
            self.failed = error
        other.join()

    def _garbage(self) -> None:
        block = self._chance.randbytes(2**20)
        for number in range(GARBAGE):
            for port in self._ports:
                with (
                    contextlib.suppress(OSError),  # it hung up
                    socket.create_connection((self._way.address, port), PATIENCE) as stranger,
                ):
                    stranger.sendall(GREETING * (number % 2) + block)

    def _odd(self) -> bytes:
        """Return a word that cannot be read."""
        some = self._chance.randbytes(self._chance.randrange(200))
        texts = (b"", b"{}", b"[" * 10_000, b'{"start": 1}', b'{"allow": {"keys": []}}', b'{"kill": {"kernel": [1]}}')
        return self._chance.choice((some, *texts, b'{"look": ' + some, b'{"start": {"kernel": "' + b"x" * 30_000))

    def _some_by_each(self) -> None:
        """Let many connections send as many as are answered."""
        for _ in range(200):
            with zmq.Context() as context, self._way.socket(context, zmq.DEALER, self._way.port) as one:
                for _ in range(unreadable.PATIENCE):
                    one.send(self._odd())
                for _ in range(unreadable.PATIENCE):
                    assert one.poll(1000 * PATIENCE), "An odd word has no answer."
                    assert read(one.recv(), Refused).why
                self._words -= unreadable.PATIENCE

    def _all_by_one(self) -> None:
        odd = [self._odd() for _ in range(100)]
        with zmq.Context() as context, self._way.unconnected(context, zmq.DEALER) as one:
            one.sndhwm = 1000  # all but these have gone there
            self._way.connect(one, self._way.port)
            for number in range(self._words):
                one.send(odd[number % len(odd)])
