"""Talk to the API server: JSON in, JSON out, a deadline on everything, one tree of errors.

Below is the transport of the official asyncio client. Its models are not used: to build thousands of typed objects
for each list costs more than all our decisions about them.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any
from urllib.parse import urlencode
from weakref import WeakSet

import aiohttp
from kubernetes.aio.client import rest

from . import errors, paths
from .credentials import Credentials, Token
from .errors import Gone, TooMany, Unauthorized, Unavailable

MERGE_PATCH = "application/merge-patch+json"
DEADLINE = 15.0
"""Seconds for a call, waiting after a 429 included."""
CONNECT = 5.0
"""Seconds for a connection."""
PAGE = 500
"""Objects of one page of a list."""
SILENCE = 90.0
"""Seconds after which a watch without a word is taken for dead: bookmarks come every minute."""
FAREWELL = 2.0
"""Seconds for connections to end when the client is closed."""
WATCH_SECONDS = (240, 360)
"""How long a watch may last before the server ends it; not all at the same time."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects, and the version of the whole from which a watch goes on."""

    items: list[dict[str, Any]]
    resource_version: str


@dataclass(frozen=True, slots=True)
class Event:
    """One line of a watch: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK`` (only its version counts)."""

    type: str
    object: dict[str, Any]


class Kube:
    """One per process; an async context manager. Every method raises :class:`~.errors.KubeError` and nothing else."""

    def __init__(
        self, credentials: Credentials, *, user_agent: str = "jupyter-gpu", deadline: float = DEADLINE
    ) -> None:
        self._credentials = credentials
        self._agent = user_agent
        self._deadline = deadline
        self._token = Token(credentials.token) if credentials.token else None
        self._configuration: Any = None
        self._rest: Any = None
        self._sockets: WeakSet[socket.socket] = WeakSet()

    async def __aenter__(self) -> Kube:
        self._configuration = await self._credentials.configuration()
        client: Any = rest.RESTClientObject
        self._rest = client(self._configuration)
        # Proxies of the environment are for the user's programs: the way to our own cluster leads through none.
        self._configuration.client_session_kwargs = {
            "connector": aiohttp.TCPConnector(
                limit=self._rest.maxsize, ssl=self._rest.ssl_context, socket_factory=self._socket
            ),
            "trust_env": False,
        }
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        transport, self._rest = self._rest, None
        if transport is None:
            return
        await transport.close()
        await self._configuration.client_session_kwargs["connector"].close(abort_ssl=True)
        # The farewells of connections that were given up before could last longer than the event loop: cut them short.
        clock = asyncio.get_running_loop().time
        end = clock() + FAREWELL
        while (left := [link for link in self._sockets if link.fileno() >= 0]) and clock() < end:
            for link in left:
                with contextlib.suppress(OSError):
                    link.shutdown(socket.SHUT_RDWR)
            await asyncio.sleep(0.001)

    def _socket(self, address: Any) -> socket.socket:
        """For one connection. A server that vanished without a word is noticed in some 25 s."""
        family, kind, protocol, _, _ = address
        link = socket.socket(family, kind, protocol)
        link.setblocking(False)
        link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, seconds in ((socket.TCP_KEEPIDLE, 10), (socket.TCP_KEEPINTVL, 5), (socket.TCP_KEEPCNT, 3)):
            link.setsockopt(socket.IPPROTO_TCP, option, seconds)
        self._sockets.add(link)
        return link

    @property
    def namespace(self) -> str:
        """Of our own pod, where we are in one."""
        return self._credentials.namespace

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """One object."""
        return await self._call("GET", path, query)

    async def list(self, path: str, *, labels: str = "", fields: str = "", resource_version: str = "") -> Listing:
        """All objects there now, page by page. ``resource_version``: not older than that, from the server's cache.

        ``"0"`` is whatever the cache has: cheap, and possibly older than what was seen before.
        """
        query = _selection(labels, fields)
        if resource_version:
            return _listing(await self._call("GET", path, {**query, "resourceVersion": resource_version}))
        items: list[dict[str, Any]] = []
        page = {**query, "limit": str(PAGE)}
        while True:
            try:
                body = await self._call("GET", path, page)
            except Gone:  # the pages outlived their snapshot: all at once, then
                if "continue" not in page:
                    raise
                return _listing(await self._call("GET", path, query))
            found = _listing(body)
            items += found.items
            more = (body.get("metadata") or {}).get("continue")
            if not more:
                return Listing(items, found.resource_version)
            page = {**query, "limit": str(PAGE), "continue": str(more)}

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        silence: float = SILENCE,
        opened: Callable[[], None] | None = None,
    ) -> AsyncIterator[Event]:
        """Every change after ``resource_version``, in order, until the server ends it.

        Ends without error when the server or the silence says so: go on from the last version. Raises
        :class:`~.errors.Gone` if that is forgotten, :class:`~.errors.Unavailable` if the connection is cut.
        ``opened`` is called when the server has accepted.
        """
        query = {
            **_selection(labels, fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),  # noqa: S311 - no secret
        }
        response = await self._send("GET", path, query, None, "", self._deadline)
        try:
            await _raise_for_status(response)
            if opened:
                opened()
            async for line in _lines(response, silence):
                yield _event(line)
        finally:
            response.close()  # not released: what the server still wants to say must not reach the next call

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """A new object."""
        return await self._call("POST", path, {}, body)

    async def patch(self, path: str, body: Mapping[str, Any], *, content_type: str = MERGE_PATCH) -> dict[str, Any]:
        """Change an object; ``metadata.uid`` and ``metadata.resourceVersion`` in ``body`` are preconditions."""
        return await self._call("PATCH", path, {}, body, content_type)

    async def delete(self, path: str, *, uid: str = "") -> None:
        """Remove an object, only that of this ``uid`` where one is given; it is no error if it is gone already."""
        body = {"preconditions": {"uid": uid}} if uid else {}
        try:
            await self._call("DELETE", path, {}, {"kind": "DeleteOptions", "apiVersion": "v1", **body})
        except errors.NotFound:
            return

    async def bind(
        self, namespace: str, name: str, node: str, *, uid: str, annotations: Mapping[str, str] | None = None
    ) -> None:
        """Bind a pod to a node; ``annotations`` are written to the pod in the same transaction."""
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": namespace, "uid": uid, "annotations": dict(annotations or {})},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        }
        await self._call("POST", paths.pod(namespace, name, "binding"), {}, body)

    # -- one call ------------------------------------------------------------------------------------------------------

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """The JSON of the answer. A 429 says that nothing was done: waited for and repeated within the deadline."""
        loop = asyncio.get_running_loop()
        end = loop.time() + self._deadline
        renewed = False
        while True:
            try:
                return await self._once(method, path, query, body, content_type, end - loop.time())
            except TooMany as error:
                if loop.time() + error.retry_after >= end:
                    raise
                await asyncio.sleep(error.retry_after * random.uniform(1, 1.2))  # noqa: S311 - no secret
            except Unauthorized:
                if self._token is None or renewed:
                    raise
                self._token.read(again=True)  # a clock that was set can hide that the file is new
                renewed = True

    async def _once(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str, seconds: float
    ) -> dict[str, Any]:
        response = await self._send(method, path, query, body, content_type, seconds, total=True)
        try:
            await _raise_for_status(response)
            return _object(await _read(response))
        finally:
            response.release()

    async def _send(
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
        if self._rest is None:
            raise Unavailable(0, "Closed", "The client is not open.", sent=False)
        url = self._configuration.host + path + (f"?{urlencode(query)}" if query else "")
        headers = {"Accept": "application/json", "User-Agent": self._agent, **await self._authorization()}
        if content_type:
            headers["Content-Type"] = content_type
        limit = aiohttp.ClientTimeout(total=max(seconds, 0.001) if total else None, sock_connect=CONNECT)
        try:
            async with asyncio.timeout(seconds):
                answer = await self._rest.request(method, url, headers, body, _request_timeout=limit)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise _no_answer(error) from None
        response: aiohttp.ClientResponse = answer.response
        return response

    async def _authorization(self) -> dict[str, str]:
        if self._token is not None:
            return {"Authorization": f"Bearer {self._token.read()}"}
        value = await self._configuration.get_api_key_with_prefix("BearerToken")
        return {"Authorization": value} if value else {}


def _selection(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in query.items() if value}


def _no_answer(error: Exception) -> Unavailable:
    refused = isinstance(error, aiohttp.ClientConnectorError | aiohttp.ConnectionTimeoutError)
    why = str(error) or ("it took too long" if isinstance(error, TimeoutError) else type(error).__name__)
    return Unavailable(0, type(error).__name__, f"The API server can't be reached: {why}", sent=not refused)


async def _read(response: aiohttp.ClientResponse) -> bytes:
    try:
        return await response.read()
    except (aiohttp.ClientError, OSError) as error:
        raise _no_answer(error) from None


async def _raise_for_status(response: aiohttp.ClientResponse) -> None:
    if response.status < 300:
        return
    text = await _read(response)
    try:
        body = json.loads(text)
    except ValueError:  # a proxy between us and it, or an API server that starts
        body = {"message": f"The API server answered {response.status}: {text[:200].decode(errors='replace').strip()}"}
    raise errors.from_status(response.status, body, response.headers.get("Retry-After", ""))


def _object(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Unavailable(0, "NotJson", "The API server's answer is no JSON object.")
    return body


def _listing(body: Mapping[str, Any]) -> Listing:
    items = body.get("items")
    version = (body.get("metadata") or {}).get("resourceVersion")
    if not isinstance(items, list | None) or not isinstance(version, str):
        raise Unavailable(0, "NotAList", "The API server's answer is no list.")
    kind, group = str(body.get("kind", "")).removesuffix("List"), body.get("apiVersion")
    for item in items or ():  # the same as in a watch
        item.setdefault("kind", kind)
        item.setdefault("apiVersion", group)
    return Listing(items or [], version)


async def _lines(response: aiohttp.ClientResponse, silence: float) -> AsyncIterator[bytes]:
    """Whole lines. Half of one is that of a cut connection: the change it tells of comes again."""
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
        *lines, rest_of_line = (rest_of_line + chunk).split(b"\n")
        for line in lines:
            if line:
                yield line


def _event(line: bytes) -> Event:
    body = _object(line)
    kind, found = body.get("type"), body.get("object")
    if not isinstance(kind, str) or not isinstance(found, dict):
        raise Unavailable(0, "NotAnEvent", "The API server's watch tells something that is no change.")
    if kind == "ERROR":
        code = found.get("code")
        raise errors.from_status(code if isinstance(code, int) else 500, found)
    return Event(kind, found)
