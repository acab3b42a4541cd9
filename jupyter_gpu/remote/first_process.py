"""The first process of a worker: its address with the keys of both ends, and questions to it.

CurveZMQ with keys that both ends know before, and a plain poller: it works in any thread and below a running loop. A
server may have none of the packages that a call needs.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import zmq
from zmq.utils.monitor import recv_monitor_message

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.service import MAX_WORKERS, read_key, read_worker_id
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import Killed, Refused, Running, Started, Word

PATIENCE = 30.0
"""Seconds that a worker may take to answer before it counts as unreachable; it may have to start a kernel."""
CONNECT = 10.0
"""Seconds until a worker must have answered the handshake."""
BEAT, SILENCE = 5_000, 15_000
"""Milliseconds between ZeroMQ's own heartbeats, and without one until the other end counts as gone."""
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
        made.connect(f"tcp://[{self.address}]:{port}" if made.ipv6 else f"tcp://{self.address}:{port}")
        return made


def ask(address: WorkerAddress, word: Word, patience: float = PATIENCE) -> Started | Killed | Running:
    """Ask the first process of a worker; raises `WorkerRefused` and `WorkerLost`."""
    with zmq.Context() as context, address.socket(context, zmq.DEALER, address.port) as socket:
        monitor = socket.get_monitor_socket(MONITORED | zmq.EVENT_HANDSHAKE_SUCCEEDED)
        poller = zmq.Poller()
        poller.register(socket, zmq.POLLIN)
        poller.register(monitor, zmq.POLLIN)
        try:
            socket.send(word.dump())
            _await_handshake(address, monitor, min(patience, CONNECT))
            events = dict(poller.poll(int(patience * 1000)))
            if socket not in events:
                raise lost(address, monitor if monitor in events else None)
            answer = control.read(socket.recv(), Started, Killed, Running, Refused)
        except strict.FieldError as error:
            raise WorkerLost(
                gettext("The answer of the worker on %1 cannot be read: %2", address.where, error)
            ) from None
        finally:
            socket.disable_monitor()
            monitor.close(linger=0)
    if isinstance(answer, Refused):
        raise WorkerRefused(answer.why)
    assert isinstance(answer, Started | Killed | Running)
    return answer


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
    if event == zmq.EVENT_DISCONNECTED:
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
