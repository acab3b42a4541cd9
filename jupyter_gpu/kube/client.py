"""The client of the API server: JSON in, JSON out, a deadline on everything, one tree of errors."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from . import errors
from .credentials import Credentials
from .errors import Gone, TooMany, Unauthorized, Unavailable
from .transport import Transport, lines, raise_for_status, read

MERGE_PATCH = "application/merge-patch+json"
DEADLINE = 15.0
"""Seconds for a call, waiting after a 429 included."""
PAGE = 500
"""Objects of one page of a list."""
SILENCE = 90.0
"""Seconds after which a silent watch counts as dead: bookmarks come every minute."""
WATCH_SECONDS = (240, 360)
"""Least and most seconds that a watch may last before the server ends it; not all end at the same time."""

Trim = Callable[[dict[str, Any]], dict[str, Any]]
"""Makes an object smaller."""


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of objects, and the resource version from which a watch can continue."""

    items: list[dict[str, Any]]
    resource_version: str


@dataclass(frozen=True, slots=True)
class WatchEvent:
    """One line of a watch: ``ADDED``, ``MODIFIED``, ``DELETED`` or ``BOOKMARK`` (only its version counts)."""

    type: str
    object: dict[str, Any]


class Kube:
    """The client, one per process; an async context manager. Its methods raise `KubeError` and nothing else."""

    def __init__(
        self, credentials: Credentials, *, user_agent: str = "jupyter-gpu", deadline: float = DEADLINE
    ) -> None:
        self._deadline = deadline
        self._transport = Transport(credentials, user_agent)
        self.namespace = credentials.namespace
        """Namespace of our own pod, where we are in one."""

    async def __aenter__(self) -> Kube:
        await self._transport.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._transport.close()

    async def get(self, path: str, **query: str) -> dict[str, Any]:
        """Read one object."""
        return await self._call("GET", path, query)

    async def list(
        self,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        trim: Trim | None = None,
        size: int = PAGE,
    ) -> Listing:
        """List all objects there now, page by page. ``resource_version``: not older than that, from the server's cache.

        ``"0"`` is the state of that cache, which is cheap to read and possibly older than one that was seen before.
        ``trim`` makes each object smaller as soon as its page of ``size`` objects is there.
        """
        query = _selection(labels, fields)
        if resource_version:
            return _listing(await self._call("GET", path, {**query, "resourceVersion": resource_version}), trim)
        items: list[dict[str, Any]] = []
        page = {**query, "limit": str(size)}
        while True:
            try:
                body = await self._call("GET", path, page)
            except Gone:  # the server no longer has the snapshot of the first page: ask for all at once
                if "continue" not in page:
                    raise
                return _listing(await self._call("GET", path, query), trim)
            found = _listing(body, trim)
            items += found.items
            more = (body.get("metadata") or {}).get("continue")
            if not more:
                return Listing(items, found.resource_version)
            page = {**query, "limit": str(size), "continue": str(more)}

    async def watch(
        self,
        path: str,
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        silence: float = SILENCE,
        opened: Callable[[], None] | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Yield every change after ``resource_version``, in order, until the server ends the watch.

        Ends without error then, and after ``silence`` seconds without data: continue from the last version. Raises
        `Gone` if the server no longer knows the version, `Unavailable` if the connection is cut. ``opened`` is called
        when the server has accepted the watch.
        """
        query = {
            **_selection(labels, fields),
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": resource_version,
            "timeoutSeconds": str(random.randint(*WATCH_SECONDS)),  # noqa: S311 - no secret
        }
        response = await self._transport.send("GET", path, query, None, "", self._deadline)
        try:
            await raise_for_status(response)
            if opened:
                opened()
            async for line in lines(response, silence):
                yield _event(line)
        except Unauthorized:
            self._transport.renew()  # for the next try, which is the caller's
            raise
        finally:
            response.close()  # not released: data that is still to come must not reach the next call

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object."""
        return await self._call("POST", path, {}, body)

    async def patch(
        self, path: str, body: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, content_type: str = MERGE_PATCH
    ) -> dict[str, Any]:
        """Change an object; ``metadata.uid`` and ``metadata.resourceVersion`` in ``body`` are preconditions."""
        return await self._call("PATCH", path, {}, body, content_type)

    async def delete(self, path: str, *, uid: str = "", resource_version: str = "", grace: int | None = None) -> None:
        """Remove an object, if ``uid`` is given only the one with it; an object that is gone already is no error.

        ``resource_version``: only if it is still in this version; raises `Conflict` otherwise.
        ``grace``: seconds that a pod's programs have to end; 0 removes the object at once.
        """
        wanted = {"uid": uid, "resourceVersion": resource_version}
        preconditions = {key: value for key, value in wanted.items() if value}
        body: dict[str, Any] = {"preconditions": preconditions} if preconditions else {}
        if grace is not None:
            body["gracePeriodSeconds"] = grace
        try:
            await self._call("DELETE", path, {}, {"kind": "DeleteOptions", "apiVersion": "v1", **body})
        except errors.NotFound:
            return

    # -- one call ------------------------------------------------------------------------------------------------------

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Mapping[str, Any] | Sequence[Mapping[str, Any]] | None = None,
        content_type: str = "application/json",
    ) -> dict[str, Any]:
        """Return the JSON of the answer. After a 429 nothing was done: wait and repeat within the deadline."""
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
                if renewed or not self._transport.renew():
                    raise
                renewed = True

    async def _once(
        self, method: str, path: str, query: Mapping[str, str], body: Any, content_type: str, seconds: float
    ) -> dict[str, Any]:
        response = await self._transport.send(method, path, query, body, content_type, seconds, total=True)
        try:
            await raise_for_status(response)
            return _object(await read(response))
        finally:
            response.release()


def _selection(labels: str, fields: str) -> dict[str, str]:
    query = {"labelSelector": labels, "fieldSelector": fields}
    return {key: value for key, value in query.items() if value}


def _object(text: bytes) -> dict[str, Any]:
    try:
        body = json.loads(text)
    except ValueError:
        body = None
    if not isinstance(body, dict):
        raise Unavailable(0, "NotJson", "The API server's answer is no JSON object.")
    return body


def _listing(body: Mapping[str, Any], trim: Trim | None = None) -> Listing:
    items = body.get("items")
    version = (body.get("metadata") or {}).get("resourceVersion")
    if not isinstance(items, list | None) or not isinstance(version, str):
        raise Unavailable(0, "NotAList", "The API server's answer is no list.")
    kind, group = str(body.get("kind", "")).removesuffix("List"), body.get("apiVersion")
    for item in items or ():  # as in a watch: a list has them once for all its items
        item.setdefault("kind", kind)
        item.setdefault("apiVersion", group)
    return Listing([trim(item) for item in items or ()] if trim else items or [], version)


def _event(line: bytes) -> WatchEvent:
    body = _object(line)
    kind, found = body.get("type"), body.get("object")
    if not isinstance(kind, str) or not isinstance(found, dict):
        raise Unavailable(0, "NotAnEvent", "The API server's watch sent something that is no change.")
    if kind == "ERROR":
        code = found.get("code")
        raise errors.from_status(code if isinstance(code, int) else 500, found)
    return WatchEvent(kind, found)
