"""A socket for the gates in one pod's programs, and its connections: bytes in, messages out. Nothing is decided here.

Nothing here waits. If a client does not read, the kernel's buffer of its connection fills, and when that is full the
connection is closed: there is no other queue. A client that sends much is read a little at a time, so that other
clients are served as well.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import socket
import time
from collections.abc import Callable, Collection, Sequence
from typing import Generic, Protocol, TypeVar

from jupyter_gpu_node.shares.rules.framing import SIZE, Malformed, Stream
from jupyter_gpu_node.shares.rules.pace import Pace

from .peer import Check, Peer, peer_of, user_of

READ = 1024
"""Bytes that are read of one connection before others are served."""
ACCEPTS = 8
"""Connections that are taken of one socket before others are served."""
PAUSE = 0.1
"""Seconds without new connections when the process can open no more files."""
MESSAGES, MESSAGE_WINDOW = 64, 0.01
"""Messages of one socket that are read in each window, and its seconds; more wait in the kernel's buffers. A lease
takes two or three messages of each process."""
QUIET = 1.0
"""Seconds between two lines in the log about one socket: a flood is reported once."""

_EXHAUSTED = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_log = logging.getLogger(__name__)
In = TypeVar("In")
"""The messages of a gate."""
Out = TypeVar("Out")
"""The messages to a gate."""


class ConnectionHandler(Protocol[In, Out]):
    """The receiver of connections and their messages."""

    def listens(self) -> None:
        """Note that connections can be made from now on."""

    def connected(self, connection: Connection[In, Out]) -> None:
        """Note a new connection."""

    def received(self, connection: Connection[In, Out], messages: Sequence[In]) -> None:
        """Handle the messages of a connection."""

    def disconnected(self, connection: Connection[In, Out]) -> None:
        """Note that a connection is closed."""


class Connection(Generic[In, Out]):
    """One connection of a program."""

    def __init__(self, gate_socket: GateSocket[In, Out], sock: socket.socket, peer: Peer) -> None:
        self.peer = peer
        self.gate_socket = gate_socket
        self._socket = sock
        self._number = sock.fileno()
        self._stream = gate_socket.stream()
        self.closed = False
        if not gate_socket.muted:
            self.listen()

    def listen(self) -> None:
        """Receive what it sends."""
        self.gate_socket.loop.add_reader(self._number, self.read)

    def stop_listening(self) -> None:
        """Stop receiving: what it sends waits in the kernel's buffer."""
        self.gate_socket.loop.remove_reader(self._number)

    def send(self, message: Out) -> bool:
        """Send a message, and tell whether it could be sent; if not, the connection is of no use any more."""
        try:
            if self._socket.send(self.gate_socket.encode(message)) == SIZE:
                return True
        except BlockingIOError:
            pass
        except OSError:  # it has just ended
            return False
        self.gate_socket.warn(f"the connection of process {self.peer.pid} is closed: it does not read what it is sent")
        return False

    def close(self) -> None:
        """Close it at this end; again: nothing."""
        if not self.closed:
            self.closed = True
            self.stop_listening()
            self.gate_socket.connections.discard(self)
            self._socket.close()

    def read(self) -> None:
        """Read what has come by now."""
        try:
            data = self._socket.recv(READ)
        except (BlockingIOError, InterruptedError):
            return
        except OSError:  # it ended with something unread
            data = b""
        if not data:
            rest = len(self._stream.rest)
            self.gate_socket.lost(self, f"it ended after {rest} bytes of a message" if rest else "")
            return
        try:
            messages = self._stream.feed(data)
            self.gate_socket.count_messages(len(messages))
            if messages:
                self.gate_socket.accept_on_siblings()
                self.gate_socket.handler.received(self, messages)
        except Malformed as error:
            self.gate_socket.lost(self, f"what it sent is no message: {error}")


class GateSocket(Generic[In, Out]):
    """A socket for the programs of ``pod``; ``title`` names it in the log, as ``part`` names what has connections."""

    def __init__(
        self,
        title: str,
        pod: str,
        check: Check,
        handler: ConnectionHandler[In, Out],
        stream: Callable[[], Stream[In]],
        encode: Callable[[Out], bytes],
        part: str,
    ) -> None:
        self.title = title
        self.pod = pod
        self.handler = handler
        self.stream = stream
        self.encode = encode
        self._part = part
        self.most = 1
        """Connections at a time."""
        self.siblings: Collection[GateSocket[In, Out]] = ()
        """The sockets of the same pod whose connections are taken before a message of this one is handled."""
        self.pace = Pace()
        """The pace of connections to all sockets of the pod."""
        self.connections: set[Connection[In, Out]] = set()
        self.loop = asyncio.get_running_loop()
        self._check = check
        self._listening: socket.socket | None = None
        self._timer: asyncio.TimerHandle | None = None
        self.muted = False
        """Whether it received too much lately."""
        self._received, self._since = 0, -MESSAGE_WINDOW
        self._warned_at = -QUIET
        self._suppressed = 0

    def open(self, listening: socket.socket) -> None:
        """Take connections from that socket."""
        self._listening = listening
        self.handler.listens()
        self._resume()

    def shut(self) -> None:
        """Take no more connections; those that are there stay."""
        if self._timer:
            self._timer.cancel()
        if self._listening:
            self.loop.remove_reader(self._listening.fileno())
            self._listening.close()
            self._listening = None

    def lost(self, connection: Connection[In, Out], reason: str) -> None:
        """Close a useless ``connection``, and give back everything that it had."""
        if connection.closed:
            return
        connection.close()
        if reason:
            self.warn(f"the connection of process {connection.peer.pid} is closed: {reason}")
        self.handler.disconnected(connection)

    def count_messages(self, messages: int) -> None:
        """Count ``messages``: if a client floods the server, all of this socket wait a little instead of the others."""
        now = self.loop.time()
        if now >= self._since + MESSAGE_WINDOW:
            self._received, self._since = 0, now
        self._received += messages
        if self._received > MESSAGES and not self.muted:
            self.muted = True
            for connection in self.connections:
                connection.stop_listening()
            self.loop.call_later(MESSAGE_WINDOW, self._hear_again)

    def _hear_again(self) -> None:
        self.muted = False
        for connection in self.connections:
            connection.listen()

    def warn(self, what: str) -> None:
        """Log one line, at most one a second."""
        now = time.monotonic()
        if now < self._warned_at + QUIET:
            self._suppressed += 1
            return
        more = f" ({self._suppressed} more like this before)" if self._suppressed else ""
        self._warned_at, self._suppressed = now, 0
        _log.warning("%s: %s%s", self.title, what, more)

    def accept_on_siblings(self) -> None:
        """Accept the connections that the pod's programs made to its other GPUs, before a later message is handled.

        A program on several GPUs must be known as one before it gets any of them.
        """
        for sibling in self.siblings:
            sibling.accept()

    def accept(self) -> list[Connection[In, Out]]:
        """Accept the connections made by now, and return those admitted; nothing that they sent is read yet."""
        admitted: list[Connection[In, Out]] = []
        if (pause := self.pace.until - self.loop.time()) > 0:
            self._pause(pause)
        for _ in range(ACCEPTS):
            if self._listening is None or self._timer is not None:
                break
            try:
                sock, _ = self._listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError as error:
                if error.errno not in _EXHAUSTED:
                    raise
                self._pause(PAUSE)
                self.warn(f"no more connections can be taken now: {error.strerror}")
                break
            found = self._admit(sock)
            if isinstance(found, Connection):
                admitted.append(found)
            else:
                sock.close()
                self.warn(found)
        return admitted

    def _pause(self, seconds: float) -> None:
        """Accept nothing for a while: new connections wait in the socket."""
        if self._listening and self._timer is None:
            self.loop.remove_reader(self._listening.fileno())
            self._timer = self.loop.call_later(seconds, self._resume)

    def _resume(self) -> None:
        self._timer = None
        if self._listening:
            self.loop.add_reader(self._listening.fileno(), self._accept)

    def _accept(self) -> None:
        for connection in self.accept():
            if not (self.muted or connection.closed):
                connection.read()  # a new client asks at once: the loop may have much else to do before its next poll

    def _admit(self, sock: socket.socket) -> Connection[In, Out] | str:
        """Admit a connection, or return why it is refused."""
        now = self.loop.time()
        if len(self.connections) >= self.most:
            self.pace.refused(now)
            return f"a connection is refused: it has {self.most} already, which is all that {self._part} can have"
        if not self.pace.takes(user_of(sock), now):
            return "a connection is refused: its programs connect too often"
        sock.setblocking(False)
        try:
            peer = peer_of(sock)
        except OSError as error:
            return f"a connection is refused: {error}"
        if refusal := self._check(peer, self.pod):
            return f"a connection is refused: {refusal}"
        connection = Connection(self, sock, peer)
        self.connections.add(connection)
        self.handler.connected(connection)
        return connection
