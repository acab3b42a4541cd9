"""A hook for jupyterhub-idle-culler, so that a server whose cell computes on a GPU without a word is not stopped.

A cell that prints nothing sends nothing to the server, which then counts as inactive however busy its GPU is. In the
culler's configuration file::

    from jupyter_gpu_hub.culling import cull_arbiter
    c.IdleCuller.cull_arbiter_hook = cull_arbiter

It reads the pods of the hub's namespace with the rights of the culler's service account (list pods), once for all
servers of a round. A server is spared while a process has a GPU open, or while that cannot be found out, but no longer
than `SPARED_SECONDS`: a kernel that was forgotten keeps its GPU open as well. ``max_age`` of the culler is not asked.

https://github.com/jupyterhub/jupyterhub-idle-culler (cull_arbiter_hook, since 2.0)
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import timedelta
from typing import Any

from jupyter_gpu.kube import Kube, KubeError, credentials
from jupyter_gpu.kube.credentials import NoCredentials
from jupyter_gpu.kube.rules import paths

from .rules.culling import may_stop, server_of, uses_gpus

SPARED_SECONDS = 24 * 3600.0
"""Seconds of inactivity after which a server is stopped though it has GPUs open."""
KNOWN_SECONDS = 20.0
"""Seconds for which pods that were read count for other servers, too."""

Pods = Sequence[Mapping[str, Any]]

_log = logging.getLogger(__name__)


class CullArbiter:
    """The hook. ``namespace``: that of the servers' pods, ``*``: all; by default the culler's own.

    ``spared_seconds`` and ``known_seconds`` as `SPARED_SECONDS` and `KNOWN_SECONDS`; ``read`` returns the pods, and may
    raise `KubeError` or `NoCredentials`.
    """

    def __init__(
        self,
        namespace: str = "",
        *,
        spared_seconds: float = SPARED_SECONDS,
        known_seconds: float = KNOWN_SECONDS,
        read: Callable[[], Awaitable[Pods]] | None = None,
    ) -> None:
        self._namespace = namespace
        self._spared_seconds = spared_seconds
        self._known_seconds = known_seconds
        self._read = read or self._list
        self._reading: asyncio.Task[Pods | None] | None = None
        self._began = 0.0
        self._trouble = ""

    async def __call__(
        self, *, inactive: timedelta | None, inactive_limit: float, server: Mapping[str, Any], **_: Any
    ) -> bool:
        """Tell whether ``server`` is to be stopped: the hub's model of it, inactive for so long."""
        seconds = inactive.total_seconds() if inactive is not None else 0.0
        if seconds < inactive_limit:
            return False
        pods, names = await self._pods(), server_of(server)
        uses = uses_gpus(pods, *names) if pods is not None and names is not None else None
        stops = may_stop(seconds, inactive_limit, self._spared_seconds, uses)
        if not stops:
            why = "a process has a GPU open" if uses else "what it does with GPUs is not known"
            _log.info("The server %s is not stopped: %s.", server.get("full_name"), why)
        return stops

    async def _pods(self) -> Pods | None:
        """Return the pods, read within the last seconds; ``None`` where they can't be read."""
        if self._reading is None or time.monotonic() - self._began > self._known_seconds:
            self._began = time.monotonic()
            self._reading = asyncio.ensure_future(self._try())
        return await asyncio.shield(self._reading)

    async def _try(self) -> Pods | None:
        try:
            found = await self._read()
        except (KubeError, NoCredentials) as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                _log.warning("Pods can't be read, so no inactive server is stopped for now: %s", self._trouble)
            return None
        self._trouble = ""
        return found

    async def _list(self) -> Pods:
        async with Kube(credentials.load(), user_agent="jupyter-gpu-culling") as kube:
            own = self._namespace or os.environ.get("POD_NAMESPACE") or kube.namespace or "default"
            return (await kube.list(paths.pods("" if own == "*" else own))).items


cull_arbiter = CullArbiter()
"""The hook with its defaults."""
