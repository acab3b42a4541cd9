"""REST routes below ``<base>/jupyter-gpu/api/v1/``; ``docs/openapi.yaml`` describes them.

Every verb checks the user (authenticated) and their permission (authorized: GET is read, PUT is write, of the resource
``jupyter_gpu``). Every error is JSON: ``{"reason", "message", "details"}``.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
import time
from collections.abc import Awaitable, Callable
from http.client import responses
from types import TracebackType
from typing import Any, NoReturn

from jupyter_server.auth.decorator import authorized
from jupyter_server.base.handlers import APIHandler
from jupyter_server.extension.handler import ExtensionHandlerMixin
from tornado import web

from jupyter_gpu.model.errors import BackendUnavailable, GpuError, InvalidRequest, NotPermitted, TooLarge
from jupyter_gpu.model.lease import decode_lease
from jupyter_gpu.model.request import MAX_REQUEST_BYTES, decode_request
from jupyter_gpu.model.strict import MAX_GENERATION
from jupyter_gpu.model.view import View
from jupyter_gpu.server.rules.resizes import Resizes

from .leases import Leases
from .local_endpoint import LocalAuthorizer, LocalEndpoint, LocalIdentityProvider
from .viewers import Viewers, view_json

PREFIX = "/jupyter-gpu/api"
RESOURCE = "jupyter_gpu"
MAX_WAIT = 30.0
"""Seconds that a long poll may last: less than proxies wait."""
MAX_DRAINED_BYTES = 16 * 2**20
"""Bytes of an oversized body that are read and dropped, for clients that read the answer only after they have
sent everything. A larger body is cut off."""

VIEWERS = "jupyter_gpu_viewers"
"""Key in the settings of the web application: a `Viewers`, or the error that says why there is none."""
STARTING = "jupyter_gpu_starting"
"""The task that starts the backend, in a server that is embedded in a running program; else ``None``."""
RESIZES = "jupyter_gpu_resizes"
LEASES = "jupyter_gpu_leases"
"""The `Leases` of the backend; set where `VIEWERS` are."""
VISIBLE_BY = "jupyter_gpu_visible_by"
"""Key of the form in which ``CUDA_VISIBLE_DEVICES`` names GPUs in kernels (``uuid``, ``index``)."""
USAGE_ACCOUNT = "jupyter_gpu_usage_account"
"""The `UsageAccount` of the server."""
STATE_DIR = "jupyter_gpu_state_dir"
"""Path of the configured state directory, or empty."""
SHOW_MACHINE = "jupyter_gpu_show_machine"
"""Key of the setting of what this server's users see of other servers."""
PAGE_OPTION = "jupyterGpuMachine"
"""Page option with the same value."""
LIMITS_OPTION = "jupyterGpuLimits"
"""Page option with the address of the page about limits, or empty."""
LOCAL_ENDPOINT = "jupyter_gpu_local_endpoint"
"""The `LocalEndpoint` for this server's own kernels and terminals, or ``None``."""

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


class JsonErrors(ExtensionHandlerMixin, web.RequestHandler):
    """Errors as JSON, with short log lines for mistakes of clients."""

    @property
    def identity_provider(self) -> Any:
        """Identity provider: ours for a program with the endpoint's secret, otherwise the server's."""
        return _LOCAL_IDENTITY if self._is_local() else super().identity_provider  # type: ignore[misc] # of JupyterHandler

    @property
    def authorizer(self) -> Any:
        """Authorizer: ours for a program with the endpoint's secret, otherwise the server's."""
        return _LOCAL_AUTHORIZER if self._is_local() else super().authorizer  # type: ignore[misc]

    def check_xsrf_cookie(self) -> None:
        """Require no cookie of a program with the secret. JupyterHub adds its own check to Jupyter's handlers."""
        if not self._is_local():
            super().check_xsrf_cookie()

    def _is_local(self) -> bool:
        endpoint: LocalEndpoint | None = self.settings.get(LOCAL_ENDPOINT)
        return endpoint is not None and endpoint.admits(self.request.headers.get("Authorization", ""))

    def write_error(self, status_code: int, **kwargs: Any) -> None:  # noqa: ARG002 # a GpuError knows better
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


class ApiHandler(JsonErrors, APIHandler):
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


class StatusHandler(ApiHandler):
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


class SampleHandler(ApiHandler):
    """The load of the GPUs and the use of their time shares, for programs; the panel has the stream."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with a sample no older than the interval between two of the stream."""
        viewers = await self.viewers()
        self.answer((await viewers.sampler.now()).to_json())


class BodyHandler(ApiHandler):
    """Base of handlers with a body, which is counted while it arrives and kept up to the largest valid size."""

    async def prepare(self) -> None:  # type: ignore[override] # as in APIHandler
        """Refuse by the headers alone if no body could be valid."""
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
            self.send_error(413)  # closes the connection after it, for the body was not read to its end

    def body(self) -> bytes:
        """Return the whole body; raises 413 if it is too large, 415 if its header does not say JSON."""
        if self._received > MAX_REQUEST_BYTES:
            raise web.HTTPError(413)
        if self.request.headers.get("Content-Type", "").partition(";")[0].strip().lower() != "application/json":
            raise web.HTTPError(415)
        return bytes(self._body)

    async def carry_out(self, job: Callable[[Leases], Awaitable[View]]) -> None:
        """Answer with the view after ``job``, which changes the wish."""
        viewers, resizes, leases = await self.viewers(), self.settings[RESIZES], self.settings[LEASES]
        assert isinstance(resizes, Resizes)
        assert isinstance(leases, Leases)
        token = resizes.asked(time.monotonic())
        try:
            view = await job(leases)
        finally:
            resizes.answered(token)
        self.answer(view_json(await viewers.named(view)))


@web.stream_request_body
class RequestHandler(BodyHandler):
    """The wish of this server."""

    @web.authenticated
    @authorized
    async def put(self) -> None:
        """Record the wish of the body; answer with the view after that."""
        asked = decode_request(self.body())
        await self.carry_out(lambda to: to.request(asked.after, asked.generation, overrule=asked.overrule))


@web.stream_request_body
class LeaseHandler(BodyHandler):
    """The lease of a block of code, until it ends. The client chooses the key, so that it can give back a lease
    without having its answer.
    """

    @web.authenticated
    @authorized
    async def put(self, key: str) -> None:
        """Hold so much from now on; answer with the view after that."""
        lease = decode_lease(key, self.body())
        await self.carry_out(lambda leases: leases.begin(lease))

    @web.authenticated
    @authorized
    async def delete(self, key: str) -> None:
        """Give it back, once or repeatedly; answer with the view after that."""
        await self.carry_out(lambda leases: leases.end(key))


class NotFoundHandler(ApiHandler):
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
