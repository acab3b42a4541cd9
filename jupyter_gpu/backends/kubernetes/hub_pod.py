"""Our own pod through the hub's service, for a pod without a token of the cluster.

The token that the hub gave to this server says which pod is meant. It is sent to the configured address and to no
other, so redirects are not followed, and neither proxies nor cookies are used.
"""

from __future__ import annotations

import asyncio
import os
import random
import ssl
from collections.abc import Mapping
from types import SimpleNamespace, TracebackType
from typing import Any

import aiohttp

from jupyter_gpu.backends.kubernetes.rules import hub_answer
from jupyter_gpu.kube import Forbidden, Invalid, KubeError, NotFound, TooMany, Unauthorized, Unavailable
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import Requested
from jupyter_gpu.model.errors import BackendUnavailable

from .own_pod import ANSWERS, OwnPod, Pod, Tell

TOKEN = "JUPYTERHUB_API_TOKEN"  # noqa: S105 - its name
"""Variable with the token that the hub gives to each server."""
ROUTE = "api/v1/server/pod"
"""Path below the service's address."""
CONNECT = 5.0
"""Seconds for a connection."""
FIRST_TRIES = 5
"""Attempts at the start, one a second, while the service does not know the pod yet."""


def token_here() -> str:
    """Return the token of this server; raises `BackendUnavailable`."""
    found = os.environ.get(TOKEN, "")
    if not found.isascii() or not found.isprintable() or not found:
        raise BackendUnavailable(
            f"{TOKEN} is not set, but GpuExtension.hub_service is: only a server that a JupyterHub started can have "
            "its requests written by the hub's service."
        )
    return found


class HubService:
    """The service's route for the pod of a server; an async context manager. Calls raise `KubeError` and `GpuError`."""

    def __init__(self, address: str, token: str, *, deadline: float) -> None:
        self._url = address + ROUTE
        self._headers = {"Accept": "application/json", "User-Agent": "jupyter-gpu", "Authorization": f"token {token}"}
        self._deadline = deadline
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> HubService:
        trace = aiohttp.TraceConfig()
        trace.on_request_headers_sent.append(_note_sent)
        tls: Any = ssl.create_default_context() if self._url.startswith("https:") else False
        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=4, ssl=tls),
            cookie_jar=aiohttp.DummyCookieJar(),
            trust_env=False,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT),
            trace_configs=[trace],
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    async def call(self, method: str, body: Mapping[str, Any] | None = None) -> Pod:
        """Return the pod of an answer. After a 429 nothing was done: wait and repeat within the deadline."""
        clock = asyncio.get_running_loop().time
        end = clock() + self._deadline
        while True:
            try:
                return await self._once(method, body, end - clock())
            except TooMany as error:
                if clock() + error.retry_after >= end:
                    raise
                await asyncio.sleep(error.retry_after * random.uniform(1, 1.1))  # noqa: S311 - no secret

    async def _once(self, method: str, body: Mapping[str, Any] | None, seconds: float) -> Pod:
        if self._session is None:
            raise Unavailable(0, "Closed", "The client is not open.", sent=False)
        sent: list[str] = []  # aiohttp repeats a PUT by itself, and tells the last error only
        try:
            async with (
                asyncio.timeout(max(seconds, 0.001)),
                self._session.request(
                    method, self._url, json=body, headers=self._headers, allow_redirects=False, trace_request_ctx=sent
                ) as answer,
            ):
                text = await _body(answer)
        except (aiohttp.ClientError, OSError, ValueError) as error:  # TimeoutError is an OSError
            raise hub_answer.away(error, sent=bool(sent)) from None
        return hub_answer.read(answer.status, text, answer.headers.get("Retry-After", ""))


class HubPod(OwnPod):
    """The pod that the service tells for the token of this server; ``uid``: that of our pod, where it is known."""

    partner = "JupyterHub's service of GPU limits"
    answers = (*ANSWERS, TooMany)

    def __init__(self, service: HubService, uid: str = "", trouble: Tell = lambda _: None) -> None:
        super().__init__(trouble, uid)
        self._service = service

    async def fetch_first(self) -> Pod | None:
        """Return the pod; a service that has just started, or whose watch is behind, may not know it at once."""
        for _ in range(FIRST_TRIES):
            try:
                return await self.fetch()
            except NotFound:
                await asyncio.sleep(1)
            except KubeError:
                break
        return await super().fetch_first()

    async def _read(self) -> Pod:
        return self._mine(await self._service.call("GET"))

    async def _write(self, requested: Requested, version: str) -> Pod:
        return self._mine(await self._service.call("PUT", {"requested": requested.to_json(), "version": version}))

    def _mine(self, pod: Pod) -> Pod:
        if self.uid and objects.uid(pod) != self.uid:
            raise NotFound(404, "Replaced", "The service knows another pod as this server.")
        return pod

    def gone(self, error: NotFound) -> str:
        """Return the sentence for a pod that the service does not know any more."""
        return f"This server's pod is not found any more, so nothing can be changed. {error.message}"

    def _hopeless(self, error: KubeError) -> BackendUnavailable | None:
        match error:
            case NotFound():
                return BackendUnavailable(
                    f"{self.partner} does not know the pod of this server: {error.message} An administrator can "
                    "compare hub.name in the values of jupyter-gpu's chart with the name that the hub's pods have."
                )
            case Forbidden() | Unauthorized():
                return BackendUnavailable(
                    f"{self.partner} does not let this server ask for GPUs: {error.message} An administrator can allow "
                    "it: hub.write in the values of jupyter-gpu's chart, and access:services!service=gpu in the hub's "
                    "Spawner.server_token_scopes."
                )
            case Invalid():
                return BackendUnavailable(f"{self.partner} can't be used: {error.message}")
        return None


async def _note_sent(
    _: aiohttp.ClientSession, context: SimpleNamespace, request: aiohttp.TraceRequestHeadersSentParams
) -> None:
    context.trace_request_ctx.append(request.method)


async def _body(answer: aiohttp.ClientResponse) -> bytes:
    """Return the body, or the beginning of one that is too long to be read."""
    found = bytearray()
    async for chunk in answer.content.iter_any():
        found += chunk
        if len(found) > hub_answer.MAX_BYTES:
            break
    return bytes(found)
