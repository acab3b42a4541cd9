"""The route of the ways to the pod's workers, with secret keys: ``…/workers``, for code of this server alone.

``GET``: ``?owner=`` is the process that is about to have kernels there, as JSON: they end with it. ``PUT``: what such a
process has shipped to each worker.
"""

from __future__ import annotations

import socket
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.reservation import MAX_RESERVATION_BYTES, ReservationOwner

from .handlers import BodyHandler
from .keys import WORKER_KERNELS
from .rules.shipped import decode_shipped
from .worker_kernels import WorkerKernels


@web.stream_request_body
class WorkersHandler(BodyHandler):
    """The workers that can be reached. No browser gets them: the local secret and the Unix socket are both needed."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with address and keys of each worker; with none where the backend has no workers."""
        workers = await self._workers()
        text = self.get_query_argument("owner", None)
        owner = None if text is None else _owner(text)
        self.answer(await workers.ways(owner) if workers else {"workers": []})

    @web.authenticated
    @authorized
    async def put(self) -> None:
        """Take over what a process has shipped."""
        workers = await self._workers()
        owner, shipped = decode_shipped(self.body())
        if workers:
            await workers.shipped(owner, shipped)
        self.answer({})

    async def _workers(self) -> WorkerKernels | None:
        """Return the workers; None where the backend has none. Everybody else gets 404."""
        if not (self._is_local() and _by_unix_socket(self.request.connection)):
            raise web.HTTPError(404)
        await self.viewers()
        found: WorkerKernels | None = self.settings.get(WORKER_KERNELS)
        return found


def _owner(text: str) -> ReservationOwner:
    """Read the process that asks; raises `InvalidRequest`."""
    try:
        return ReservationOwner.from_json(strict.loads(text.encode(), MAX_RESERVATION_BYTES))
    except strict.FieldError as error:
        raise InvalidRequest(str(error), field="owner") from None


def _by_unix_socket(connection: Any) -> bool:
    """Tell whether a request came over a Unix socket."""
    stream = getattr(connection, "stream", None)
    found = getattr(stream, "socket", None)
    return found is not None and found.family == socket.AF_UNIX
