"""The pages of Dask's schedulers, behind this server's login: ``GET <base>/jupyter-gpu/dask/<name>/…``.

A scheduler that a program of this server runs has them at a socket of this user (`dask/nodes.py`), as they have no
login of their own. A request goes there without what says who asked, and the answer comes back as it is; so do both
directions of a WebSocket, which the plots use. Only what reads is passed on.
"""

from __future__ import annotations

import asyncio
import socket
from contextlib import suppress
from pathlib import Path
from urllib.parse import parse_qsl, urlencode

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import JupyterHandler
from tornado import web
from tornado.iostream import IOStream, StreamClosedError, UnsatisfiableReadError

from jupyter_gpu.common import rendezvous

from .handlers import RESOURCE, BaseHandler

HEADERS = ("Accept", "Accept-Encoding", "Accept-Language", "If-Modified-Since", "If-None-Match")
"""Headers of a request that are passed on."""
WEBSOCKET = (
    *("Upgrade", "Sec-WebSocket-Extensions", "Sec-WebSocket-Key", "Sec-WebSocket-Protocol"),
    "Sec-WebSocket-Version",
)
"""Those of a WebSocket, in addition."""
MAX_HEAD = 64 * 1024
"""Bytes of the headers of an answer."""
_CHUNK = 64 * 1024


class DaskHandler(BaseHandler, JupyterHandler):
    """The pages of one scheduler."""

    auth_resource = RESOURCE

    @web.authenticated
    @authorized
    async def get(self, name: str, _: str) -> None:
        """Pass the request on, and the answer back."""
        upgrades = self.request.headers.get("Upgrade", "").lower() == "websocket"
        if upgrades and not self.check_origin():  # a page of another site must not read with this user's cookie
            raise web.HTTPError(403)
        scheduler = await self._connect(name)
        try:
            await scheduler.write(self._head(name, upgrades=upgrades))
            head = await scheduler.read_until(b"\r\n\r\n", max_bytes=MAX_HEAD)
        except (StreamClosedError, UnsatisfiableReadError):
            scheduler.close()
            raise web.HTTPError(502) from None
        status, rest = head.split(b"\r\n", 1)
        ours = f"Content-Security-Policy: {self.content_security_policy}\r\nX-Content-Type-Options: nosniff\r\n"
        browser = self.detach()
        try:
            await browser.write(status + b"\r\n" + ours.encode() + rest)
            ways = [_pass(scheduler, browser), *([_pass(browser, scheduler)] if upgrades else [])]
            tasks = [asyncio.ensure_future(way) for way in ways]
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        except StreamClosedError:
            pass
        finally:
            scheduler.close()
            browser.close()

    async def _connect(self, name: str) -> IOStream:
        stream = IOStream(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC))
        try:
            with rendezvous.short(str(rendezvous.dask_socket(Path(self.serverapp.runtime_dir), name))) as address:
                await stream.connect(address)
        except (OSError, StreamClosedError):
            stream.close()
            raise web.HTTPError(404, "No program of this server has a Dask scheduler here (any more).") from None
        return stream

    def _head(self, name: str, *, upgrades: bool) -> bytes:
        """Return what the scheduler is asked: without cookie, token and address of whoever asked."""
        path = self.request.path.partition(f"/{rendezvous.DASK}{name}/")[2]
        query = urlencode([(key, value) for key, value in parse_qsl(self.request.query, True) if key != "token"])
        lines = [f"GET /{path}{'?' if query else ''}{query} HTTP/1.1", "Host: localhost"]
        lines.append(f"Connection: {'Upgrade' if upgrades else 'close'}")
        sent = self.request.headers
        lines += [f"{key}: {sent[key]}" for key in (*HEADERS, *(WEBSOCKET if upgrades else ())) if key in sent]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def _pass(source: IOStream, target: IOStream) -> None:
    """Write to one stream what comes from another, as fast as it is taken, until either ends."""
    with suppress(StreamClosedError):
        while True:
            await target.write(await source.read_bytes(_CHUNK, partial=True))
