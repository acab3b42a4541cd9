"""A TCP proxy that can do to connections what networks do."""

import asyncio
import random
from contextlib import suppress
from types import TracebackType


class Proxy:
    """Forwards to a port of this machine."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self.refusing = False
        """New connections are cut at once."""
        self.chop = 0
        """Cut each connection after about so many bytes of answers; 0: never."""
        self.swallowing = False
        """The server's answer is lost, and the connection with it."""
        self.connections = 0

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.cut()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def cut(self) -> None:
        """Every connection ends now, in the middle of whatever it carries."""
        for writer in tuple(self._writers):
            writer.transport.abort()
        for task in self._tasks:
            task.cancel()

    def stall(self) -> None:
        """Let nothing through any more, without a word."""
        self._flowing.clear()

    def flow(self) -> None:
        """The opposite."""
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            if self.refusing:
                return
            self.connections += 1
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self._target)
            self._writers |= {writer, far_writer}
            budget = random.randint(self.chop // 4, self.chop) if self.chop else 0
            with suppress(OSError):
                await asyncio.gather(self._pipe(reader, far_writer, None), self._pipe(far_reader, writer, budget))
            far_writer.transport.abort()
            self._writers -= {writer, far_writer}
        except (OSError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pipe(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, budget: int | None) -> None:
        """``budget``: bytes of answers until the cut, 0 for no end; None for what is asked."""
        passed = 0
        while data := await reader.read(8192):
            await self._flowing.wait()
            if self.swallowing and budget is not None:
                raise ConnectionAbortedError
            if budget and passed + len(data) >= budget:
                writer.write(data[: budget - passed])
                writer.close()  # in order, so that what was sent before arrives
                await writer.wait_closed()
                raise ConnectionAbortedError
            passed += len(data)
            writer.write(data)
            await writer.drain()
        raise ConnectionAbortedError
