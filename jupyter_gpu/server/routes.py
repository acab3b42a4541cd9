"""REST routes below ``<base>/jupyter-gpu/api/v1/``; ``docs/openapi.yaml`` describes them."""

from __future__ import annotations

import asyncio
import contextlib
import math
from typing import NoReturn

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.request import decode_request
from jupyter_gpu.model.reservation import decode_reservation
from jupyter_gpu.model.strict import MAX_GENERATION

from .handlers import BodyHandler, RestHandler

MAX_WAIT = 30.0
"""Seconds that a long poll may last: less than proxies wait."""


class StatusHandler(RestHandler):
    """The view, at once or as soon as there is a newer one."""

    _track_activity = False  # an open panel must not keep an idle server alive
    _wait: asyncio.Future[None] | None = None
    _gone = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with the latest view; with ``after``, wait up to ``timeout`` seconds for a newer one."""
        after = read_after(self.get_query_argument("after", None))
        timeout = read_timeout(self.get_query_argument("timeout", None))
        viewers = await self.viewers()
        if after:
            self._wait = viewers.newer(*after)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._wait, timeout)
            viewers.check_open()
        if not self._gone:
            self.answer(await viewers.now())

    def on_connection_close(self) -> None:
        """Stop waiting: the client went away."""
        self._gone = True
        if self._wait and not self._wait.done():
            self._wait.set_result(None)


class SampleHandler(RestHandler):
    """The load of the GPUs and the use of their time shares, for programs; the panel has the stream."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with a sample no older than the interval between two of the stream."""
        viewers = await self.viewers()
        self.answer((await viewers.sampler.now()).to_json())


@web.stream_request_body
class RequestHandler(BodyHandler):
    """The request of this server for GPUs."""

    @web.authenticated
    @authorized
    async def put(self) -> None:
        """Record the request in the body; answer with the view after that."""
        asked = decode_request(self.body())
        await self.carry_out(lambda to: to.request(asked.after, asked.generation, overrule=asked.overrule))


@web.stream_request_body
class ReservationHandler(BodyHandler):
    """The reservation of a block of code. The client chooses its key, and so can end one whose answer it never saw."""

    @web.authenticated
    @authorized
    async def put(self, key: str) -> None:
        """Begin the reservation; answer with the view after that."""
        reservation = decode_reservation(key, self.body())
        await self.carry_out(lambda reservations: reservations.begin(reservation))

    @web.authenticated
    @authorized
    async def delete(self, key: str) -> None:
        """End the reservation; safe to repeat. Answer with the view after that."""
        await self.carry_out(lambda reservations: reservations.end(key))


class NotFoundHandler(RestHandler):
    """The answer at every other address below our prefix."""

    async def prepare(self) -> NoReturn:  # type: ignore[override] # as in APIHandler
        """Answer 404 as JSON to a known user, 403 to others."""
        await super().prepare()
        raise web.HTTPError(404)


def read_after(text: str | None) -> tuple[str, int] | None:
    """Parse ``<instance>:<version>``; raises `InvalidRequest`."""
    if text is None:
        return None
    instance, colon, version = text.rpartition(":")
    if not colon or not 0 < len(instance) <= 64 or not (version.isascii() and version.isdigit() and len(version) <= 16):
        raise InvalidRequest(
            "'after' must be <instance>:<version> of a view that the server sent, such as 'a1b2:7'.", field="after"
        )
    return instance, min(int(version), MAX_GENERATION)


def read_timeout(text: str | None) -> float:
    """Parse seconds from 0 to `MAX_WAIT`, which is also the default; raises `InvalidRequest`."""
    try:
        timeout = MAX_WAIT if text is None else float(text)
    except ValueError:
        timeout = math.nan
    if not 0 <= timeout <= MAX_WAIT:
        raise InvalidRequest(f"'timeout' must be a number of seconds from 0 to {MAX_WAIT:.0f}.", field="timeout")
    return timeout
