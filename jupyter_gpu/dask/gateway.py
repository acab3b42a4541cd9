"""The way between processes of Dask on two nodes: each connection of theirs is one that the notebook dials.

A worker's pod cannot be sure to reach the notebook's, and needs no port there. So each end has a gateway. Processes of
Dask connect to that of their node, say where they want to go (`rules.targets`), and then speak TLS of their own with
the process there. Between both gateways is TLS, too, with the same key: the notebook's dials the worker's, also for
connections that begin there, of which it has some *offered* at any time. Two workers reach each other through it.
"""

from __future__ import annotations

import asyncio
import ssl
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any
from weakref import WeakSet

from jupyter_gpu.dask.rules.targets import HERE, MAX_LINE, OFFER, Target, read_target
from jupyter_gpu.model import strict
from jupyter_gpu.remote import certificates
from jupyter_gpu.remote.bulk import prepared
from jupyter_gpu.remote.certificates import Certificate

LOOPBACK = "127.0.0.1"
OFFERS = 4
"""Connections that are offered to a worker at a time."""
HANDSHAKE = 5.0
"""Seconds that a peer may take to prove its key and to say where it wants to go."""
PATIENCE = 20.0
"""Seconds within which another connection is offered."""
PAUSE = 0.5
"""Seconds after which a worker is dialled again that could not be reached."""
PIECE = 2**20
"""Bytes that are handed on at a time."""

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Gateway:
    """The common part of both ends: connections that are handed on, until `close`."""

    def __init__(self, pem: bytes) -> None:
        self._own = Certificate(ssl.PEM_cert_to_DER_cert(pem.decode().partition("-----BEGIN PRIVATE")[0]), pem)
        self._contexts = {
            server: certificates.context(self._own, self._own.der, server=server) for server in (True, False)
        }
        self._tasks: set[asyncio.Task[None]] = set()
        self._servers: list[asyncio.Server] = []
        self._open: WeakSet[asyncio.StreamWriter] = WeakSet()
        self._moved: Counter[str] = Counter()
        self.port = 0
        """The port for processes of this node."""

    async def start(self) -> None:
        """Serve the processes of this node."""
        self.port = await self._listen(self._leave, LOOPBACK, 0)

    def close(self) -> None:
        """End all connections."""
        for server in self._servers:
            server.close()
        for task in self._tasks:
            task.cancel()
        for writer in list(self._open):
            writer.close()

    async def reach(self, target: Target) -> Streams:
        """Return a connection that leads to a process; raises `OSError`."""
        raise NotImplementedError

    def spawn(self, job: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a job until it or the gateway ends."""
        task = asyncio.get_running_loop().create_task(job)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def hand_on(self, streams: Streams, line: bytes, place: str = HERE) -> None:
        """Hand on what comes from a connection of some place, to where it wants to go."""
        try:
            target = read_target(line)
            there = await self.reach(target)
        except (OSError, strict.FieldError):
            streams[1].close()
            return
        places = {place, target.place}

        def count(size: int) -> None:
            for one in places:
                self._moved[one] += size

        await _splice(streams, there, count)

    def moved(self, place: str, least: int = 1) -> int:
        """Return the bytes that were handed on to and from a place, each once; 0 for less than ``least``."""
        return self._moved.pop(place, 0) if self._moved[place] >= least else 0

    async def _leave(self, streams: Streams) -> None:
        await self.hand_on(streams, await line_of(streams))

    async def _listen(
        self, job: Callable[[Streams], Coroutine[Any, Any, None]], host: str, port: int, **by: Any
    ) -> int:
        async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self._open.add(writer)
            with suppress(OSError):
                prepared(writer.get_extra_info("socket"))
            self.spawn(job((reader, writer)))

        server = await asyncio.start_server(accept, host, port, limit=PIECE, **by)
        self._servers.append(server)
        return int(server.sockets[0].getsockname()[1])


class NotebookGateway(Gateway):
    """The notebook's end, which dials."""

    def __init__(self, pem: bytes) -> None:
        super().__init__(pem)
        self.known: Callable[[Target], bool] = lambda _: False
        """Tells whether a process of this node belongs to this Dask: nothing leads to others."""
        self._routes: dict[str, tuple[str, int]] = {}
        self._offers: dict[str, list[asyncio.Task[None]]] = {}

    def lead(self, place: str, address: str, port: int) -> None:
        """Lead to a worker's end at some address from now on; the port 0: to none."""
        for task in self._offers.pop(place, []):
            task.cancel()
        self._routes.pop(place, None)
        if port:
            self._routes[place] = address, port
            self._offers[place] = [self.spawn(self._offer(place)) for _ in range(OFFERS)]

    async def reach(self, target: Target) -> Streams:
        """Connect to a process of this node, or dial the end of another one."""
        if target.place == HERE:
            if not self.known(target):
                raise ConnectionRefusedError
            return await asyncio.open_connection(LOOPBACK, target.port, limit=PIECE)
        return await self._dial(target.place, target.line())

    async def _dial(self, place: str, line: bytes) -> Streams:
        if place not in self._routes:
            raise ConnectionRefusedError
        address, port = self._routes[place]
        by: dict[str, Any] = {"ssl": self._contexts[False], "ssl_handshake_timeout": HANDSHAKE}
        made = await asyncio.open_connection(address, port, limit=PIECE, **by)
        self._open.add(made[1])
        prepared(made[1].get_extra_info("socket"))
        made[1].write(line)
        return made

    async def _offer(self, place: str) -> None:
        """Keep one connection that the worker's end may use."""
        while True:
            line = b""
            with suppress(OSError):
                streams = await self._dial(place, OFFER)
                try:
                    line = await _line(streams)
                except BaseException:
                    streams[1].close()
                    raise
            if line:
                self.spawn(self.hand_on(streams, line, place))
            else:
                await asyncio.sleep(PAUSE)


class WorkerGateway(Gateway):
    """The end in a worker's pod, which is dialled."""

    def __init__(self, pem: bytes, place: str) -> None:
        super().__init__(pem)
        self._place = place
        self._offered: asyncio.Queue[Streams] = asyncio.Queue()

    async def serve(self, address: str, port: int) -> int:
        """Listen for the notebook's end; return the port. Raises `OSError`."""
        by = {"ssl": self._contexts[True], "ssl_handshake_timeout": HANDSHAKE}
        return await self._listen(self._arrive, address, port, **by)

    async def reach(self, target: Target) -> Streams:
        """Connect to a process of this node, or use a connection that is offered."""
        if target.place == self._place:
            return await asyncio.open_connection(LOOPBACK, target.port, limit=PIECE)
        while True:
            streams = await asyncio.wait_for(self._offered.get(), PATIENCE)
            if not streams[0].at_eof():
                break
            streams[1].close()
        streams[1].write(target.line())
        return streams

    async def _arrive(self, streams: Streams) -> None:
        line = await line_of(streams)
        if line == OFFER:
            self._offered.put_nowait(streams)
        else:
            await self.hand_on(streams, line)


async def line_of(streams: Streams) -> bytes:
    """Return the first line of a connection; empty if none comes in time."""
    with suppress(TimeoutError):
        return await asyncio.wait_for(_line(streams), HANDSHAKE)
    return b""


async def _line(streams: Streams) -> bytes:
    """Return the first line; empty if there is none. What follows it stays unread."""
    try:
        line = await streams[0].readuntil(b"\n")
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        return b""
    return line if len(line) <= MAX_LINE else b""


async def _splice(one: Streams, other: Streams, count: Callable[[int], None]) -> None:
    """Hand on what both send, and count it, until one of them ends."""
    ways = ((one[0], other[1]), (other[0], one[1]))
    jobs = [asyncio.ensure_future(_pump(reader, writer, count)) for reader, writer in ways]
    try:
        await asyncio.wait(jobs, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for job in jobs:
            job.cancel()
        for _, writer in (one, other):
            writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, count: Callable[[int], None]) -> None:
    with suppress(OSError):
        while data := await reader.read(PIECE):
            count(len(data))
            writer.write(data)
            await writer.drain()
