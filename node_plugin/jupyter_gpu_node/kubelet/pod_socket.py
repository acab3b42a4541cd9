"""A socket for each slot, by which the Jupyter server in the pod asks about the node, its own GPUs and its pod.

JSON lines: ``{"get": "node"}``, ``"sample"``, ``"details"`` or ``"totals"``, one answer each; after ``{"get": "pod"}``
the connection streams the state of the pod, now and after each change, and takes no more requests. ``{"put": "peer",
…}`` says the pod's own public keys, as in ``attached``; it is answered with ``{"put": "peer"}``. The pod is
known by the slot in whose directory the socket lies: no pod can ask for another, or speak for it.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.service import Peer
from jupyter_gpu_node.kubelet.rules import requests
from jupyter_gpu_node.processes.rules.process_id import ProcessId
from jupyter_gpu_node.shares.rules import jupyter_server
from jupyter_gpu_node.shares.server import peer

NAME = "node.sock"
MAX_ANSWER = 2**20
DEADLINE = 5.0
"""Seconds for an answer."""
MAX_CONNECTIONS = 8
"""Limit for one slot."""

Answer = Callable[[str, str], Awaitable[Mapping[str, Any]]]
"""Function from a pod's uid and the kind of request to the answer."""
Follow = Callable[[str], AsyncIterator[Mapping[str, Any]]]
"""Function from a pod's uid to its states."""
Put = Callable[[str, Peer], str]
"""Function that takes over the keys of a pod, by its uid; it returns why it does not, empty if it does."""
OfFirst = Callable[[ProcessId, str], bool]
"""Function, for a thread, that tells whether a process is the first of a container of that pod, or comes from it."""


class PodSockets:
    """All sockets of this node. ``directory`` returns the directory of a slot."""

    def __init__(
        self, directory: Callable[[str], Path], answer: Answer, follow: Follow, of_first: OfFirst, put: Put
    ) -> None:
        self._directory = directory
        self._answer = answer
        self._follow = follow
        self._of_first = of_first
        self._put = put
        self._servers: dict[str, tuple[str, asyncio.Server]] = {}
        self._known: dict[str, dict[asyncio.StreamWriter, ProcessId]] = {}
        """Connections, by slot, of processes that come from the first of their container."""
        self._one = asyncio.Lock()  # two calls for one slot would leave a server that never ends

    @property
    def servers(self) -> frozenset[ProcessId]:
        """The Jupyter servers, at most one of each container (see `jupyter_server`)."""
        found = (jupyter_server.server(known.values()) for known in self._known.values())
        return frozenset(one for one in found if one is not None)

    async def serve(self, slot: str, uid: str) -> None:
        """Have the socket of ``slot`` serve that pod from now on. Raises `OSError`."""
        async with self._one:
            await self._serve(slot, uid)

    async def _serve(self, slot: str, uid: str) -> None:
        path = self._directory(slot) / NAME
        before = self._servers.get(slot)
        if before and before[0] == uid and path.is_socket():
            return
        await self._close(slot)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.unlink(missing_ok=True)
        connections: dict[asyncio.StreamWriter, ProcessId] = {}
        known = self._known[slot] = {}

        async def connected(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            process = _peer(writer)
            if process is None or not _has_room(connections, process):
                writer.close()
                return
            connections[writer] = process
            try:
                if await asyncio.to_thread(self._of_first, process, uid):
                    known[writer] = process
                await self._converse(slot, uid, reader, writer)
            finally:
                connections.pop(writer, None)
                known.pop(writer, None)
                writer.close()

        server = await asyncio.start_unix_server(connected, path, limit=requests.MAX_BYTES)
        path.chmod(0o666)  # any user of the container may ask
        self._servers[slot] = (uid, server)

    async def forget(self, uid: str) -> None:
        """Close the sockets of a pod that is gone."""
        async with self._one:
            for slot in [slot for slot, (owner, _) in self._servers.items() if owner == uid]:
                await self._close(slot)
                (self._directory(slot) / NAME).unlink(missing_ok=True)

    async def close(self) -> None:
        """Close all sockets; the next process makes them anew in the same directories."""
        for slot in list(self._servers):
            await self._close(slot)

    async def _close(self, slot: str) -> None:
        _, server = self._servers.pop(slot, ("", None))
        if server:
            server.close()

    async def _converse(self, slot: str, uid: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                try:
                    line = await reader.readline()  # a connection may stay silent: it shows that we live
                except ValueError:  # longer than the limit
                    await _send(writer, {"error": f"A request has at most {requests.MAX_BYTES} bytes."})
                    return
                if not line:
                    return
                try:
                    asked = requests.read(line)
                except strict.FieldError as error:
                    async with asyncio.timeout(DEADLINE):
                        await _send(writer, {"error": str(error)})
                    continue
                if asked == requests.POD:
                    await self._tell_states(uid, reader, writer)
                    return
                async with asyncio.timeout(DEADLINE):
                    answer = self._take(slot, uid, writer, asked) if isinstance(asked, Peer) else None
                    await _send(writer, answer or await self._answer(uid, str(asked)))
        except (TimeoutError, OSError):
            writer.transport.abort()  # what it does not read would be kept for it

    def _take(self, slot: str, uid: str, writer: asyncio.StreamWriter, peer: Peer) -> Mapping[str, Any]:
        """Take over the pod's keys, from its server alone: two programs that each say others would never come to rest.

        A worker's server is its first process.
        """
        known = self._known.get(slot, {})
        if writer not in known or known[writer] != jupyter_server.server(known.values()):
            return {"error": "Only the server of this pod says its keys: the first program that it was started for."}
        refused = self._put(uid, peer)
        return {"error": refused} if refused else {"put": "peer"}

    async def _tell_states(self, uid: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Send states until the other end hangs up or sends more. Raises `TimeoutError` if it does not read."""
        writer.transport.set_write_buffer_limits(0)  # what is sent is waited for
        sending = asyncio.ensure_future(self._send_states(uid, writer))
        ended = asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait((sending, ended), return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, ended):
                task.cancel()
            await asyncio.gather(sending, ended, return_exceptions=True)

    async def _send_states(self, uid: str, writer: asyncio.StreamWriter) -> None:
        async with contextlib.aclosing(self._follow(uid)) as states:  # type: ignore[type-var]
            async for state in states:
                async with asyncio.timeout(DEADLINE):
                    await _send(writer, state)


def _has_room(connections: dict[asyncio.StreamWriter, ProcessId], newcomer: ProcessId) -> bool:
    """Make room for a new connection, and tell whether it may stay: at the limit the youngest process loses one."""
    if len(connections) < MAX_CONNECTIONS:
        return True
    loser = jupyter_server.makes_room(connections.values(), newcomer)
    if loser is None:
        return False
    writer = next(writer for writer, process in connections.items() if process == loser)
    del connections[writer]
    writer.close()
    return True


def _peer(writer: asyncio.StreamWriter) -> ProcessId | None:
    """Return the process that connected; None if it has ended."""
    try:
        found = peer.peer_of(writer.get_extra_info("socket"))
    except OSError:
        return None
    return ProcessId(found.pid, found.start)


async def _send(writer: asyncio.StreamWriter, body: Mapping[str, Any]) -> None:
    line = strict.dumps(body).encode() + b"\n"
    if len(line) > MAX_ANSWER:
        line = b'{"error": "The answer is too long."}\n'
    writer.write(line)
    await writer.drain()
