"""The first process of a worker: its address with the keys of both ends, and questions to it.

CurveZMQ with keys that both ends know before, and a plain poller: it works in any thread and below a running loop. A
server may have none of the packages that a call needs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import zmq
from zmq.utils.monitor import recv_monitor_message

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.service import MAX_WORKERS, read_key, read_worker_id
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import (
    Checked,
    Killed,
    Load,
    Loads,
    Look,
    Refused,
    Running,
    Started,
    Tell,
    Told,
    Word,
)

PATIENCE = 30.0
"""Seconds that a worker may take to answer before it counts as unreachable; it may have to start a kernel."""
CONNECT = 10.0
"""Seconds until a worker must have answered the handshake."""
TELLS = 2.0
"""Seconds that a worker may take to tell how a kernel ended."""
BEAT, SILENCE = 5_000, 15_000
"""Milliseconds between ZeroMQ's own heartbeats, and without one until the other end counts as gone."""
SLOWEST = 5_000
"""Milliseconds to which the pauses grow after which ZeroMQ tries to reach a worker that has gone."""
MONITORED = zmq.EVENT_DISCONNECTED | zmq.EVENT_HANDSHAKE_FAILED_AUTH | zmq.EVENT_HANDSHAKE_FAILED_PROTOCOL


@dataclass(frozen=True)
class WorkerAddress:
    """An address of a worker, and the keys of both ends."""

    where: str
    """The place, in words for people."""
    address: str
    port: int
    key: str
    """Public key of the worker."""
    public: str
    """Public key of this end."""
    secret: str = field(repr=False)

    def socket(self, context: zmq.Context[Any], kind: int, port: int, identity: bytes = b"") -> zmq.Socket[Any]:
        """Return a socket that connects to one of the worker's ports."""
        made = self.unconnected(context, kind, identity)
        self.connect(made, port)
        return made

    def unconnected(self, context: zmq.Context[Any], kind: int, identity: bytes = b"") -> zmq.Socket[Any]:
        """Return a socket for `connect`: a monitor that is to see the handshake must be there before."""
        made: zmq.Socket[Any] = context.socket(kind)
        made.linger = 0
        made.sndhwm = made.rcvhwm = 0
        made.curve_serverkey = self.key.encode()
        made.curve_publickey, made.curve_secretkey = self.public.encode(), self.secret.encode()
        made.heartbeat_ivl, made.heartbeat_timeout = BEAT, SILENCE
        if identity:
            made.identity = identity
        if kind == zmq.SUB:
            made.subscribe(b"")
        made.ipv6 = ":" in self.address
        return made

    def connect(self, made: zmq.Socket[Any], port: int) -> None:
        """Connect a socket to one of the worker's ports."""
        made.connect(f"tcp://[{self.address}]:{port}" if made.ipv6 else f"tcp://{self.address}:{port}")


Answer = Started | Killed | Running | Loads | Checked | Told


class Questions:
    """Questions over one connection to a first process, one after the other."""

    def __init__(self, address: WorkerAddress, patience: float = PATIENCE, *, waits: bool = True) -> None:
        """Connect; raises `WorkerLost`.

        ``patience``: seconds for each answer. ``waits``: also for a process that does not listen yet.
        """
        self._address, self._patience = address, patience
        watched = MONITORED | zmq.EVENT_HANDSHAKE_SUCCEEDED | (0 if waits else zmq.EVENT_CONNECT_RETRIED)
        self._context = zmq.Context()
        try:
            self._socket = address.unconnected(self._context, zmq.DEALER)
            self._monitor = self._socket.get_monitor_socket(watched)
            self._socket.reconnect_ivl_max = SLOWEST
            address.connect(self._socket, address.port)
            _await_handshake(address, self._monitor, min(patience, CONNECT))
        except BaseException:
            self.close()
            raise
        self._poller = zmq.Poller()
        self._poller.register(self._socket, zmq.POLLIN)
        self._poller.register(self._monitor, zmq.POLLIN)

    def close(self) -> None:
        """End the connection."""
        self._context.destroy(linger=0)

    @property
    def ended(self) -> bool:
        """Whether the other end has gone meanwhile."""
        return bool(self._monitor.poll(0))

    def ask(self, word: Word, patience: float | None = None) -> Answer:
        """Return the answer to a word; raises `WorkerRefused` and `WorkerLost`."""
        self._socket.send(word.dump())
        events = dict(self._poller.poll(int(1000 * (self._patience if patience is None else patience))))
        if self._socket not in events:
            raise lost(self._address, self._monitor if self._monitor in events else None)
        try:
            answer = control.read(self._socket.recv(), Started, Killed, Running, Loads, Checked, Told, Refused)
        except strict.FieldError as error:
            raise WorkerLost(
                gettext("The answer of the worker on %1 cannot be read: %2", self._address.where, error)
            ) from None
        if isinstance(answer, Refused):
            raise WorkerRefused(answer.why)
        assert isinstance(answer, Answer)
        return answer


@contextmanager
def questions(address: WorkerAddress, patience: float = PATIENCE, *, waits: bool = True) -> Iterator[Questions]:
    """Connect to the first process of a worker; raises `WorkerLost`. The arguments are those of `Questions`."""
    with closing(Questions(address, patience, waits=waits)) as asking:
        yield asking


def ask(address: WorkerAddress, word: Word, patience: float = PATIENCE) -> Answer:
    """Ask the first process of a worker; raises `WorkerRefused` and `WorkerLost`."""
    with questions(address, patience) as asking:
        return asking.ask(word)


class Seen(NamedTuple):
    """The answer of a first process to `Look`, and to `Load` where that was asked, too."""

    running: Running
    round_trip: int
    """Microseconds until the first of them came, over a connection that was there."""
    loads: Loads


def look(address: WorkerAddress, patience: float, *, loads: bool = False) -> Seen:
    """Look at a worker; raises `WorkerRefused` and `WorkerLost`."""
    with questions(address, patience) as asking:
        begin = time.perf_counter_ns()
        running = asking.ask(Look())
        passed = (time.perf_counter_ns() - begin) // 1000
        assert isinstance(running, Running)
        return Seen(running, passed, _loads(asking) if loads else Loads())


def _loads(asking: Questions) -> Loads:
    """Return the loads, or none where they do not come: a node plugin may be away, a worker older than the word."""
    with suppress(WorkerLost, WorkerRefused):
        told = asking.ask(Load())
        assert isinstance(told, Loads)
        return told
    return Loads()


def had_no_memory(address: WorkerAddress, kernel: str, patience: float = TELLS) -> bool:
    """Tell whether a kernel whose connection was lost ended because the worker had no memory left, as far as known."""
    until = time.monotonic() + patience
    with (
        suppress(WorkerLost, WorkerRefused),  # older ones do not know the word
        questions(address, patience, waits=False) as asking,
    ):
        while True:
            told = asking.ask(Tell(kernel))
            assert isinstance(told, Told)
            if not told.alive or time.monotonic() > until:
                return told.memory
            time.sleep(0.05)  # its connections end a moment before it does
    return False


def _await_handshake(address: WorkerAddress, monitor: zmq.Socket[Any], patience: float) -> None:
    """Wait until both ends know each other; raises `WorkerLost`."""
    if not monitor.poll(int(patience * 1000)):
        raise lost(address, None)
    event = recv_monitor_message(monitor)["event"]
    if event != zmq.EVENT_HANDSHAKE_SUCCEEDED:
        raise _lost_by(address, event)


def lost(address: WorkerAddress, monitor: zmq.Socket[Any] | None) -> WorkerLost:
    """Return the error of a worker that was silent, or of which a monitor tells something."""
    if monitor is None:
        return WorkerLost(gettext("The worker on %1 does not answer.", address.where))
    return _lost_by(address, recv_monitor_message(monitor)["event"])


def _lost_by(address: WorkerAddress, event: int) -> WorkerLost:
    if event in (zmq.EVENT_DISCONNECTED, zmq.EVENT_CONNECT_RETRIED):
        return WorkerLost(gettext("The worker on %1 has ended, or the connection to it.", address.where))
    return WorkerLost(gettext("The worker on %1 does not accept the key of this notebook.", address.where))


def _read_way(value: Any, key: str) -> tuple[str, WorkerAddress]:
    body = strict.an_object(value, key)
    return strict.required(body, "id", read_worker_id), WorkerAddress(
        where=strict.required(body, "node", strict.text(253)),
        address=strict.required(body, "address", strict.text(64)),
        port=strict.required(body, "port", strict.integer(1, 65535)),
        key=strict.required(body, "key", read_key),
        public=strict.required(body, "public", read_key),
        secret=strict.required(body, "secret", read_key),
    )


def read_ways(value: Any) -> dict[str, WorkerAddress]:
    """Read the answer of the server: the workers that can be reached, by id. Raises `FieldError`."""
    body = strict.an_object(value, "answer")
    return dict(strict.required(body, "workers", strict.list_of(_read_way, MAX_WORKERS)))
