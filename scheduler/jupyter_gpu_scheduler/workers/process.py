"""The process of the worker controller: makes all parts and runs them. If a part ends, the process does."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Coroutine, Mapping

from jupyter_gpu.common.parts import first_to_end
from jupyter_gpu.common.status_server import StatusServer
from jupyter_gpu.kube import Kube, LeaderLease, LeaseTimes, Reflector, Selection, credentials, identity
from jupyter_gpu.kube.rules import paths

from .metrics import WorkerMetrics
from .pods import WorkerPods
from .rules.records import trim
from .settings import WorkerSettings

_log = logging.getLogger(__name__)


class WorkerProcess:
    """All parts of one worker controller. Made and run once, on one event loop."""

    def __init__(self, kube: Kube, settings: WorkerSettings, environ: Mapping[str, str] = os.environ) -> None:
        self._settings = settings
        self._metrics = WorkerMetrics()
        self._pods = WorkerPods(kube, settings.template, settings.bounds, metrics=self._metrics)
        self._watches = {
            namespace: Reflector(
                kube, Selection(paths.pods(namespace), trim=trim), on_change=self._pods.changed, newest=True
            )
            for namespace in settings.namespaces
        }
        lease, status = settings.lease, settings.status
        times = LeaseTimes(lease.duration_seconds, lease.renew_seconds, lease.retry_seconds)
        home = lease.namespace or environ.get("POD_NAMESPACE") or kube.namespace or "default"
        self._lease = LeaderLease(kube, home, lease.name, identity(environ), times)
        metrics = self._metrics.text if status.metrics else None
        self._status = StatusServer(
            status.address, status.port, alive=self._why_silent, ready=self._why_unsynced, metrics=metrics
        )
        self._began = time.monotonic()

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop``; raises what ended it otherwise. The lease is given back in any case."""
        self._status.start()
        _log.info("Status on port %d.", self._status.port)
        parts: dict[str, Coroutine[object, object, object]] = {
            **{f"the watch of pods in {name}": watch.run() for name, watch in self._watches.items()},
            "the election": self._lease.run(self._lead),
            "stop": stop.wait(),
        }
        try:
            if ended := await first_to_end(parts) - {"stop"}:  # the lease is given back by the election
                raise RuntimeError(f"{', '.join(sorted(ended))} ended")
        finally:
            await self._status.close()

    async def _lead(self) -> None:
        """Lead after an election, once all namespaces are known."""
        for watch in self._watches.values():
            await watch.synced.wait()
        self._pods.begin()
        _log.info("It leads.")
        self._metrics.leading.set(1)
        try:
            await self._pods.keep()
        finally:
            self._metrics.leading.set(0)

    def _why_unsynced(self) -> str:
        unknown = [name for name, watch in self._watches.items() if not watch.synced.is_set()]
        return f"The pods of {', '.join(unknown)} are not known yet." if unknown else self._why_silent()

    def _why_silent(self) -> str:
        since = time.monotonic() - self._began
        silence = max(min(watch.fresh_seconds, since) for watch in self._watches.values())
        if silence > self._settings.silence_seconds:
            return f"The API server was not heard for {silence:.0f} s."
        return ""


async def run(settings: WorkerSettings, stop: asyncio.Event) -> None:
    """Run the whole process until ``stop``."""
    async with Kube(credentials.load(settings.kubeconfig), user_agent="jupyter-gpu-workers") as kube:
        await WorkerProcess(kube, settings).run(stop)
