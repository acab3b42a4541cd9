"""The server of all ``park.sock`` of a node: who is connected, and what they say. It decides nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from jupyter_gpu_node.parking.rules.introduction import Introduction
from jupyter_gpu_node.parking.rules.members import Send
from jupyter_gpu_node.parking.rules.messages import FromGate
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules.framing import Malformed
from jupyter_gpu_node.shares.server import paths
from jupyter_gpu_node.shares.server.peer import Check, Peer

from .park_socket import NAME, GateConnection, ParkSocket


class Listener(Protocol):
    """The receiver of what processes say. A process that has ended is not told here: its connection may end before."""

    def heard(self, pod: str, process: ProcessId, message: FromGate) -> None:
        """Handle a message; the first of a connection is the state of the process."""

    def disconnected(self, pod: str, process: ProcessId) -> None:
        """Note that a process has no connection any more; it may connect again."""


@dataclass(frozen=True, slots=True)
class ConnectedGate:
    """A process whose gate is connected."""

    pod: str
    peer: Peer
    introduction: Introduction
    connection: GateConnection = field(repr=False)

    @property
    def process(self) -> ProcessId:
        """The process."""
        return ProcessId(self.peer.pid, self.peer.start)


class ParkServer:
    """The sockets of all pods, and the gates that are connected. ``check`` says which processes may use a socket."""

    def __init__(self, check: Check, listener: Listener) -> None:
        self._check = check
        self._listener = listener
        self._sockets: dict[str, ParkSocket] = {}
        self._gates: dict[GateConnection, ConnectedGate] = {}
        self._introduced: dict[ProcessId, ConnectedGate] = {}

    def set(self, wanted: Mapping[str, Path]) -> None:
        """Serve these pods from now on: each finds ``shares/park.sock`` in its directory. Again with the same: nothing.

        Raises `OSError` if a socket cannot be made; all others are there then, and the next call tries again.
        """
        for pod in [pod for pod, one in self._sockets.items() if wanted.get(pod) != one.directory]:
            self._remove(pod)
        problem: OSError | None = None
        for pod, directory in wanted.items():
            if pod not in self._sockets:
                try:
                    listening = paths.listen(directory, NAME)
                except OSError as error:
                    problem = error
                    continue
                self._sockets[pod] = ParkSocket(pod, directory, self._check, self)
                self._sockets[pod].open(listening)
        if problem:
            raise problem

    def gate(self, process: ProcessId) -> ConnectedGate | None:
        """Return the gate of a process; ``None``: it is not connected, or has not introduced itself."""
        return self._introduced.get(process)

    @property
    def gates(self) -> tuple[ConnectedGate, ...]:
        """All gates that have introduced themselves."""
        return tuple(self._introduced.values())

    def send(self, sends: Sequence[Send]) -> None:
        """Send messages. One to a process that is not connected is lost: it tells its state when it connects again."""
        for process, message in sends:
            gate = self._introduced.get(process)
            if gate and not gate.connection.send(message):
                gate.connection.gate_socket.lost(gate.connection, "")

    def close(self) -> None:
        """End: gates keep what they have, and wait for the next server."""
        for pod in list(self._sockets):
            self._close(self._sockets.pop(pod))

    # --- for the sockets ----------------------------------------------------------------------------------------------

    def listens(self) -> None:
        """Note that connections can be made from now on."""

    def connected(self, connection: GateConnection) -> None:
        """Note a new connection."""
        pod = connection.gate_socket.pod
        self._gates[connection] = ConnectedGate(pod, connection.peer, Introduction(), connection)

    def received(self, connection: GateConnection, messages: Sequence[FromGate]) -> None:
        """Handle the messages of a connection; those after the first invalid one are not read."""
        gate = self._gates[connection]
        for message in messages:
            try:
                if not gate.introduction.hear(message):
                    continue
            except Malformed as error:
                connection.gate_socket.lost(connection, f"what it sent is no message here: {error}")
                return
            if gate.process not in self._introduced or self._introduced[gate.process] is not gate:
                self._introduce(gate)
            self._listener.heard(gate.pod, gate.process, message)
            if connection.closed:
                return

    def disconnected(self, connection: GateConnection) -> None:
        """Note that a connection is closed."""
        gate = self._gates.pop(connection)
        if self._introduced.get(gate.process) is gate:
            del self._introduced[gate.process]
            self._listener.disconnected(gate.pod, gate.process)

    # --- parts --------------------------------------------------------------------------------------------------------

    def _introduce(self, gate: ConnectedGate) -> None:
        """Take the newest connection of a process: the one before is of no use any more."""
        before = self._introduced.pop(gate.process, None)
        self._introduced[gate.process] = gate
        if before:
            before.connection.gate_socket.lost(before.connection, "the process has connected again")

    def _remove(self, pod: str) -> None:
        park_socket = self._sockets.pop(pod)
        self._close(park_socket)
        paths.forget(park_socket.directory, NAME)

    @staticmethod
    def _close(park_socket: ParkSocket) -> None:
        park_socket.shut()
        for connection in list(park_socket.connections):
            park_socket.lost(connection, "")
