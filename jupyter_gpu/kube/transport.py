"""Connections to the API server: identity, deadlines, and all errors of connections.

They are aiohttp's. The official client is used for kubeconfigs alone: to build thousands of typed objects for each list
costs more than all decisions about them, and to import it costs more memory than they need.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from typing import Any
from urllib.parse import urlencode
from weakref import WeakSet

import aiohttp

from . import errors
from .credentials import Credentials, Endpoint, TokenFile, stamp
from .errors import Unavailable

CONNECT = 5.0
"""Seconds for a connection."""
CONNECTIONS = 100
"""Most connections at once."""
BUFFER = 2**21
"""Bytes of an answer that are read ahead: lines of a watch are long."""
CLOSE_SECONDS = 2.0
"""Seconds for connections to end when the client is closed."""

_log = logging.getLogger(__name__)


class Transport:
    """A sender of requests, which returns each answer as it comes."""

    def __init__(self, credentials: Credentials, user_agent: str) -> None:
        self._credentials = credentials
        self._agent = user_agent
        self._token = TokenFile(credentials.token) if credentials.token else None
        self._endpoint = Endpoint("")
        self._session: aiohttp.ClientSession | None = None
        self._ca: tuple[int, ...] | None = None  # stamp of the file that was read
        self._connectors: list[
            tuple[aiohttp.ClientSession, aiohttp.TCPConnector]
        ] = []  # what was opened, the one in use last
        self._sockets: WeakSet[socket.socket] = WeakSet()

    async def open(self) -> None:
        """Open the client before the first request. Raises `NoCredentials`."""
        self._endpoint = await self._credentials.endpoint()
        self._ca = self._ca_now()
        self._session = self._opened()

    def _opened(self) -> aiohttp.ClientSession:
        """Make a session with connections of its own, which trusts the authorities in the file as it is now."""
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, ssl=self._endpoint.tls(), socket_factory=self._socket)
        # Proxies of the environment are for the user's programs; the API server of the own cluster needs none.
        session = aiohttp.ClientSession(
            connector=connector, connector_owner=False, trust_env=False, read_bufsize=BUFFER
        )
        self._connectors.append((session, connector))
        return session

    def _ca_now(self) -> tuple[int, ...] | None:
        with contextlib.suppress(OSError):
            return stamp(self._credentials.ca) if self._credentials.ca else None
        return self._ca  # while it is replaced

    def _follow_ca(self) -> None:
        """Use renewed authorities of the API server for new connections; open ones stay as they are."""
        now = self._ca_now()
        if now == self._ca:
            return
        try:
            self._session = self._opened()
        except (OSError, ssl.SSLError) as error:  # half written; the old ones are still valid
            _log.warning("The renewed authorities in %s can't be used (yet): %s", self._credentials.ca, error)
        else:
            self._ca = now

    async def close(self) -> None:
        """Close all connections: none is left when this returns."""
        self._session = None
        opened, self._connectors = self._connectors, []
        for session, connector in opened:
            await session.close()
            await connector.close(abort_ssl=True)
        # Connections that were given up before could take longer to close than the event loop lasts: cut them.
        clock = asyncio.get_running_loop().time
        end = clock() + CLOSE_SECONDS
        while (left := [link for link in self._sockets if link.fileno() >= 0]) and clock() < end:
            for link in left:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(0.001)

    def renew(self) -> bool:
        """Read the token again although its file looks the same, as a changed clock can hide that it is new.

        Return whether there is a token to read.
        """
        if self._token is None:
            return False
        self._token.read(again=True)
        return True

    async def send(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Any,
        content_type: str,
        seconds: float,
        *,
        total: bool = False,
    ) -> aiohttp.ClientResponse:
        """Send a request; return the head of the answer, within ``seconds``. ``total``: so must the body be read."""
        if self._session is None:
            raise Unavailable(0, "Closed", "The client is not open.", sent=False)
        self._follow_ca()
        url = self._endpoint.url + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "User-Agent": self._agent, **await self._authorization()}
        if content_type:
            headers["Content-Type"] = content_type
        limit = aiohttp.ClientTimeout(total=max(seconds, 0.001) if total else None, sock_connect=CONNECT)
        try:
            async with asyncio.timeout(seconds):
                return await self._session.request(
                    method,
                    url,
                    headers=headers,
                    data=None if body is None else json.dumps(body).encode(),
                    timeout=limit,
                    server_hostname=self._endpoint.server_name,
                    proxy=self._endpoint.proxy,
                    proxy_headers=self._endpoint.proxy_headers,
                )
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise _no_answer(error) from None

    async def _authorization(self) -> dict[str, str]:
        if self._token is not None:
            return {"Authorization": f"Bearer {self._token.read()}"}
        value = await self._endpoint.authorization() if self._endpoint.authorization else None
        return {"Authorization": value} if value else {}

    def _socket(self, address: Any) -> socket.socket:
        """Make the socket of one connection; keepalives detect a server that vanished within 25 s."""
        family, kind, protocol, _, _ = address
        link = socket.socket(family, kind, protocol)
        link.setblocking(False)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            link.setsockopt(socket.IPPROTO_TCP, option, seconds)
        self._sockets.add(link)
        return link


def _no_answer(error: Exception) -> Unavailable:
    refused = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    why = str(error) or ("it took too long" if isinstance(error, TimeoutError) else type(error).__name__)
    return Unavailable(0, type(error).__name__, f"The API server can't be reached: {why}", sent=not refused)


async def read(response: aiohttp.ClientResponse) -> bytes:
    """Read the body."""
    try:
        return await response.read()
    except (aiohttp.ClientError, OSError) as error:
        raise _no_answer(error) from None


async def raise_for_status(response: aiohttp.ClientResponse) -> None:
    """Raise the `KubeError` of a failed request."""
    if response.status < 300:
        return
    text = await read(response)
    try:
        body = json.loads(text)
    except ValueError:  # the answer of a proxy, or of an API server that starts
        body = {"message": f"The API server answered {response.status}: {text[:200].decode(errors='replace').strip()}"}
    raise errors.from_status(response.status, body, response.headers.get("Retry-After", ""))


async def lines(response: aiohttp.ClientResponse, silence: float) -> AsyncIterator[bytes]:
    """Yield whole lines, until ``silence`` seconds bring no data. Raises `Unavailable` if a line is cut off."""
    rest_of_line = b""
    while True:
        try:
            async with asyncio.timeout(silence):
                chunk = await response.content.readany()
        except TimeoutError:
            return
        except (aiohttp.ClientError, OSError) as error:
            raise _no_answer(error) from None
        if not chunk:
            if rest_of_line:
                raise Unavailable(0, "Cut", "The API server's watch was cut off in the middle of a word.")
            return
        *whole, rest_of_line = (rest_of_line + chunk).split(b"\n")
        for line in whole:
            if line:
                yield line
