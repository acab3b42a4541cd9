"""The parts of the server extension that need a backend, joined."""

from __future__ import annotations

import time
from collections.abc import Callable
from logging import Logger
from typing import Any

from jupyter_gpu.backends.base import Backend, WithWorkers
from jupyter_gpu.model.view import View
from jupyter_gpu.server.events import SCHEMA_ID
from jupyter_gpu.server.monitoring.metrics_collector import MetricsCollector
from jupyter_gpu.server.rules import gateway
from jupyter_gpu.server.rules.resizes import Resizes

from .keys import RESERVATIONS, RESIZES, USAGE_ACCOUNT, VIEWERS, WORKER_KERNELS
from .notebooks import Notebooks
from .reservation_owners import ProcessOwners
from .reservations import Reservations
from .sampler import Sampler
from .usage_account import UsageAccount
from .viewers import Viewers
from .worker_kernels import WorkerKernels


class GpuService:
    """The service of a server with a backend: views, samples, reservations, usage, figures, and events of resizes.

    ``app``: the ServerApp. ``share``: makes a value known to handlers, by one of `keys`. ``interval``: seconds between
    two samples; ``points``: the number of samples that the history covers.
    """

    def __init__(
        self,
        app: Any,
        backend: Backend,
        share: Callable[[str, object], None],
        log: Logger,
        *,
        interval: float,
        points: int,
    ) -> None:
        self._app = app
        # The terminals' extension may be loaded after this one, so it is looked up when needed.
        notebooks = Notebooks(
            app.kernel_manager, app.session_manager, lambda: app.web_app.settings.get("terminal_manager"), log
        )
        account = UsageAccount(backend, interval)
        self._workers: WorkerKernels | None = None
        if isinstance(backend, WithWorkers):
            owners = ProcessOwners(app.kernel_manager, app.event_logger)
            self._workers = WorkerKernels(backend.workers, owners)
        figures = self._workers.figures if self._workers else None
        sampler = Sampler(backend, interval, points, log, account.count, figures)
        self._resizes = Resizes()
        self._resizes.see(backend.view(), time.monotonic())
        backend.subscribe(self._emit)
        self.metrics = MetricsCollector(backend, sampler, log)
        """Collector of figures for Prometheus."""
        self.metrics.begin()
        self._reservations = Reservations(backend, ProcessOwners(app.kernel_manager, app.event_logger))
        self._viewers = Viewers(backend, notebooks, sampler, self._reservations, figures)
        self._viewers.notes = gateway.notes(app)
        share(WORKER_KERNELS, self._workers)
        share(USAGE_ACCOUNT, account)
        share(RESIZES, self._resizes)
        share(RESERVATIONS, self._reservations)
        share(VIEWERS, self._viewers)

    async def stop(self) -> None:
        """Answer all waiting requests, and end all reservations."""
        self.metrics.end()
        await self._viewers.stop()
        self._reservations.stop()

    async def stop_workers(self) -> None:
        """End what ended notebooks have in workers, and let them go: after the kernels of this server have ended."""
        if self._workers:
            await self._workers.stop()

    def _emit(self, view: View) -> None:
        for resize in self._resizes.see(view, time.monotonic()):
            self._app.event_logger.emit(schema_id=SCHEMA_ID, data=resize.to_json())
            self.metrics.resized(resize)
