"""The route of the ways to the pod's workers, with secret keys: ``GET …/workers``, for code of this server alone."""

from __future__ import annotations

import socket
from typing import Any

from jupyter_server.auth.decorator import authorized
from tornado import web

from .handlers import RestHandler
from .keys import PAIRING_KEYS
from .pairing_keys import PairingKeys


class WorkersHandler(RestHandler):
    """The workers that can be reached. No browser gets them: the local secret and the Unix socket are both needed."""

    _track_activity = False

    @web.authenticated
    @authorized
    async def get(self) -> None:
        """Answer with address and keys of each worker; with none where the backend has no workers."""
        if not (self._is_local() and _by_unix_socket(self.request.connection)):
            raise web.HTTPError(404)
        await self.viewers()
        keys: PairingKeys | None = self.settings.get(PAIRING_KEYS)
        self.answer(keys.ways() if keys else {"workers": []})


def _by_unix_socket(connection: Any) -> bool:
    """Tell whether a request came over a Unix socket."""
    stream = getattr(connection, "stream", None)
    found = getattr(stream, "socket", None)
    return found is not None and found.family == socket.AF_UNIX
