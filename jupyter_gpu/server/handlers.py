"""Base classes of all our handlers: access, errors as JSON, bodies with a limit.

Every verb checks the user (authenticated) and their permission (authorized: GET is read, PUT is write, of the resource
``jupyter_gpu``). Every error is JSON: ``{"reason", "message", "details"}``.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from http.client import responses
from types import TracebackType
from typing import Any

from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web

from jupyter_gpu.model.errors import BackendUnavailable, GpuError, InvalidRequest, NotPermitted, TooLarge
from jupyter_gpu.model.request import MAX_REQUEST_BYTES
from jupyter_gpu.model.view import View
from jupyter_gpu.server.rules.resizes import Resizes

from .keys import LOCAL_ENDPOINT, RESERVATIONS, RESIZES, STARTING, VIEWERS
from .local_endpoint import LocalAuthorizer, LocalEndpoint, LocalIdentityProvider
from .reservations import Reservations
from .viewers import Viewers, view_json

RESOURCE = "jupyter_gpu"
MAX_DRAINED_BYTES = 16 * 2**20
"""Bytes of an oversized body that are read and dropped, for clients that read the answer only after they have
sent everything. A larger body is cut off."""

_LOCAL_IDENTITY, _LOCAL_AUTHORIZER = LocalIdentityProvider(), LocalAuthorizer()

_REASONS = {401: NotPermitted, 403: NotPermitted, 413: TooLarge, 503: BackendUnavailable}
_ADVICE = {
    401: "Log in first, or send the server's token.",
    403: "You are not logged in, or may not do this on this server.",
    404: "There is nothing at this address. See the API's description for what there is.",
    405: "This address does not understand this method.",
    413: f"The body is too large; at most {MAX_REQUEST_BYTES:,} bytes are accepted.",
    415: "The body must be JSON: send the header 'Content-Type: application/json'.",
    426: "This address speaks WebSocket only.",
}


def describe(status: int, error: BaseException | None) -> dict[str, Any]:
    """Return the JSON of an error answer; an unforeseen error shows none of its details."""
    if isinstance(error, GpuError):
        return error.to_json()
    if isinstance(error, web.HTTPError) and status < 500:
        advice = _ADVICE.get(status, f"{responses.get(status, 'The request is not acceptable')}.")
        cause = error.get_message()
        reason: type[GpuError] = _REASONS.get(status, InvalidRequest)
        return reason(f"{advice} ({cause})" if cause else advice).to_json()
    return GpuError("Something went wrong inside the server. Its log says what.").to_json()


class BaseHandler(ExtensionHandlerMixin, web.RequestHandler):
    """Base of all handlers, of REST and of the stream: access with the local secret, errors as JSON."""

    @property
    def identity_provider(self) -> Any:
        """Identity provider: ours for a program with the endpoint's secret, otherwise the server's."""
        return _LOCAL_IDENTITY if self._is_local() else super().identity_provider  # type: ignore[misc] # of JupyterHandler

    @property
    def authorizer(self) -> Any:
        """Authorizer: ours for a program with the endpoint's secret, otherwise the server's."""
        return _LOCAL_AUTHORIZER if self._is_local() else super().authorizer  # type: ignore[misc]

    def check_xsrf_cookie(self) -> None:
        """Check the cookie, except of programs with the secret: JupyterHub adds a check of its own to such handlers."""
        if not self._is_local():
            super().check_xsrf_cookie()

    def _is_local(self) -> bool:
        endpoint: LocalEndpoint | None = self.settings.get(LOCAL_ENDPOINT)
        return endpoint is not None and endpoint.admits(self.request.headers.get("Authorization", ""))

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ARG002 # a GpuError has its own status
        """Answer for the exception in ``kwargs["exc_info"]``."""
        error = kwargs.get("exc_info", (None, None, None))[1]
        if isinstance(error, GpuError):
            self.set_status(error.http_status)
        if self.get_status() == 405:
            verbs = [verb for verb in self.SUPPORTED_METHODS if verb.lower() in vars(type(self))]
            self.set_header("Allow", ", ".join([*verbs, "OPTIONS"]))
        self.set_header("Content-Type", "application/json")
        self.finish(json.dumps(describe(self.get_status(), error)))

    def log_exception(
        self, typ: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None
    ) -> None:
        """Log one line for a mistake of the client, a traceback for one of ours."""
        if isinstance(value, GpuError):
            self.log.info("%s %s: %s", self.request.method, self.request.path, value)
        else:
            super().log_exception(typ, value, tb)

    async def viewers(self) -> Viewers:
        """Return the viewers; raises `BackendUnavailable` if there is no backend."""
        if starting := self.settings[STARTING]:
            await asyncio.shield(starting)
        found = self.settings[VIEWERS]
        if isinstance(found, GpuError):
            raise type(found)(found.message, **found.details)
        assert isinstance(found, Viewers)
        found.check_open()
        return found


class RestHandler(BaseHandler, APIHandler):
    """Base of the REST handlers: `prepare` stops every request that is not authenticated."""

    auth_resource = RESOURCE

    async def prepare(self) -> None:  # type: ignore[override] # as in APIHandler
        """Refuse a request that is not authenticated, whatever the verb; a CORS preflight carries no credentials."""
        await super().prepare()
        if self.current_user is None and self.request.method != "OPTIONS":
            raise web.HTTPError(403)
        self.set_header("Cache-Control", "no-store")

    def compute_etag(self) -> None:
        """Send no ETag: an answer is true only now."""

    def answer(self, body: dict[str, Any]) -> None:
        """Send ``body`` as JSON."""
        self.finish(json.dumps(body))


class BodyHandler(RestHandler):
    """Base of handlers of changes. A body is counted while it arrives, and kept up to the largest valid size."""

    async def prepare(self) -> None:  # type: ignore[override] # as in APIHandler
        """Refuse a body that is declared too large, before it is read."""
        self._body = bytearray()
        self._received = 0
        await super().prepare()
        declared = self.request.headers.get("Content-Length", "")
        waits_for_leave = self.request.headers.get("Expect", "").lower() == "100-continue"
        most = MAX_REQUEST_BYTES if waits_for_leave else MAX_DRAINED_BYTES
        if declared.isascii() and declared.isdigit() and int(declared) > most:
            raise web.HTTPError(413)

    def data_received(self, chunk: bytes) -> None:
        """Keep as much as a valid body can have, count the rest."""
        self._received += len(chunk)
        if self._received <= MAX_REQUEST_BYTES:
            self._body += chunk
        elif self._received > MAX_DRAINED_BYTES and not self._finished:
            self.send_error(413)  # and closes the connection, as the rest of the body was not read

    def body(self) -> bytes:
        """Return the whole body; raises 413 if it is too large, 415 if its header does not say JSON."""
        if self._received > MAX_REQUEST_BYTES:
            raise web.HTTPError(413)
        if self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise web.HTTPError(415)
        return bytes(self._body)

    async def carry_out(self, job: Callable[[Reservations], Awaitable[View]]) -> None:
        """Do ``job``, which changes the request, and answer with the view after it."""
        viewers, resizes, reservations = await self.viewers(), self.settings[RESIZES], self.settings[RESERVATIONS]
        assert isinstance(resizes, Resizes)
        assert isinstance(reservations, Reservations)
        token = resizes.asked(time.monotonic())
        try:
            view = await job(reservations)
        finally:
            resizes.answered(token)
        self.answer(view_json(await viewers.named(view)))
