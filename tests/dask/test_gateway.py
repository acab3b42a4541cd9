"""Both ends of the way between Dask's processes, with real sockets."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

import pytest

from jupyter_gpu.dask.gateway import LOOPBACK, OFFERS, NotebookGateway, WorkerGateway
from jupyter_gpu.dask.rules.targets import HERE, OFFER, Target
from jupyter_gpu.remote import certificates

Work = Callable[["Ways"], Awaitable[None]]


class Ways:
    """A gateway of the notebook and those of two nodes, and a process of each place that answers with its name."""

    def __init__(self) -> None:
        pem = certificates.make().pem
        self.here, self.nodes = NotebookGateway(pem), {place: WorkerGateway(pem, place) for place in ("w1", "w2")}
        self.ports: dict[str, int] = {}
        self.doors: dict[str, int] = {}
        self._servers: list[asyncio.Server] = []

    async def start(self) -> None:
        """Start all of them."""
        for place in (HERE, *self.nodes):

            async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, place: str = place) -> None:
                data = await reader.readexactly(int(await reader.readline()))
                writer.write(place.encode() + data)
                await writer.drain()
                writer.close()

            server = await asyncio.start_server(greet, LOOPBACK, 0)
            self._servers.append(server)
            self.ports[place] = server.sockets[0].getsockname()[1]
        self.here.known = lambda target: target.port == self.ports[HERE]
        await self.here.start()
        for place, node in self.nodes.items():
            await node.start()
            self.doors[place] = await node.serve(LOOPBACK, 0)
            self.here.lead(place, LOOPBACK, self.doors[place])

    async def close(self) -> None:
        """End all of them."""
        for server in self._servers:
            server.close()
        for one in (self.here, *self.nodes.values()):
            one.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        await asyncio.wait([asyncio.ensure_future(asyncio.sleep(0.1)), *others])  # connections end

    async def say(self, place: str, line: bytes, data: bytes = b"") -> bytes:
        """Connect from a place to where a line says; return the answer to some bytes."""
        gateway = self.here if place == HERE else self.nodes[place]
        reader, writer = await asyncio.open_connection(LOOPBACK, gateway.port)
        writer.write(line + b"%d\n" % len(data) + data)
        try:
            return await asyncio.wait_for(reader.read(-1), 30)
        except ConnectionResetError:
            return b""
        finally:
            writer.close()


def run(work: Work) -> None:
    """Run a test between gateways."""

    async def job() -> None:
        ways = Ways()
        await ways.start()
        try:
            await work(ways)
        finally:
            await ways.close()

    asyncio.run(job())


def test_each_place_reaches_each() -> None:
    """The notebook dials all of it; more connections than are offered, more bytes than are read at once."""

    async def work(ways: Ways) -> None:
        data = bytes(300_000)
        pairs = [(start, end) for start in ways.ports for end in ways.ports for _ in range(OFFERS + 1) if start != end]
        lines = [Target(end, ways.ports[end]).line() for _, end in pairs]
        told = await asyncio.gather(*(ways.say(pair[0], line, data) for pair, line in zip(pairs, lines, strict=True)))
        assert [one == pair[1].encode() + data for one, pair in zip(told, pairs, strict=True)] == [True] * len(pairs)
        sizes = [(pair, len(b"300000\n" + data + pair[1].encode() + data)) for pair in pairs]
        moved = {place: sum(size for pair, size in sizes if place in pair) for place in ways.nodes}
        assert {place: ways.here.moved(place) for place in ways.nodes} == moved
        assert [ways.here.moved("w1"), ways.here.moved("w9")] == [0, 0]

    run(work)


@pytest.mark.parametrize("line", [b"w9:1\n", b"somewhere\n", b"x" * 2**21], ids=range(3))
def test_nothing_leads_elsewhere(line: bytes) -> None:
    """Not to nodes that are not known, nor to other programs of the notebook's node, whoever asks."""

    async def work(ways: Ways) -> None:
        assert await ways.say(HERE, line) == b""
        assert await ways.say("w1", line) == b""
        assert await ways.say("w1", Target(HERE, ways.ports["w1"]).line()) == b""

    run(work)


def test_stranger_is_refused() -> None:
    """Without TLS, without a certificate, with one of its own; a place that is forgotten is not reached."""

    async def work(ways: Ways) -> None:
        own = certificates.make()
        with_own, without = certificates.context(own, own.der, server=False), ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        for context in (with_own, without):
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            reader, writer = await asyncio.open_connection(LOOPBACK, ways.doors["w1"], ssl=context)
            writer.write(OFFER)
            with suppress(ssl.SSLError, ConnectionResetError):
                assert await reader.read() == b""
            writer.close()
        reader, writer = await asyncio.open_connection(LOOPBACK, ways.doors["w1"])
        writer.write(OFFER)
        assert await reader.read() in (b"", b"\x15\x03\x01\x00\x02\x02F")  # an alert of TLS
        writer.close()
        assert ways.nodes["w1"]._offered.qsize() <= OFFERS
        ways.here.lead("w1", "", 0)
        assert await ways.say(HERE, Target("w1", ways.ports["w1"]).line()) == b""

    run(work)


def test_offers_that_ended() -> None:
    """They are not used; the notebook makes others."""

    async def work(ways: Ways) -> None:
        line = Target(HERE, ways.ports[HERE]).line()
        assert await ways.say("w1", line) == b"here"
        ways.here.lead("w1", "", 0)  # those that were offered end
        await asyncio.sleep(0.05)
        ways.here.lead("w1", LOOPBACK, ways.doors["w1"])
        assert await asyncio.gather(*(ways.say("w1", line) for _ in range(2 * OFFERS))) == [b"here"] * 2 * OFFERS

    run(work)
