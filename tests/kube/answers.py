"""A server that answers what a test says: what a real API server says only under load or behind a bad proxy."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from jupyter_gpu.kube import Credentials, Kube


def http(status: int, body: str = "{}", *headers: str) -> bytes:
    """One answer."""
    lines = [f"HTTP/1.1 {status} x", f"Content-Length: {len(body.encode())}", *headers, "", body]
    return "\r\n".join(lines).encode()


@asynccontextmanager
async def answering(
    answers: Sequence[bytes], *, deadline: float = 5, token: Path | None = None
) -> AsyncIterator[tuple[Kube, list[str]]]:
    """A client of a server with these answers, one after the other, then silence; and what it was asked."""
    asked: list[str] = []
    left = list(answers)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                asked.append(head.decode())
                if not left:
                    await asyncio.sleep(60)
                answer = left.pop(0)
                if not answer:
                    return
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, OSError, asyncio.CancelledError):
            return
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    try:
        async with Kube(Credentials(f"http://127.0.0.1:{port}", token=token), deadline=deadline) as kube:
            yield kube, asked
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
