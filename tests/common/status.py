"""The answers of a status server."""

from tornado.httpclient import AsyncHTTPClient

from jupyter_gpu.common.status_server import StatusServer


async def answers(server: StatusServer, *paths: str) -> list[tuple[int, str]]:
    """Return status and body of each path."""
    server.start()
    client = AsyncHTTPClient()
    try:
        urls = [f"http://127.0.0.1:{server.port}{path}" for path in paths]
        found = [await client.fetch(url, raise_error=False) for url in urls]
        return [(answer.code, answer.body.decode()) for answer in found]
    finally:
        await server.close()
