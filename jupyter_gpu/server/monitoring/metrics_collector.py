"""Our figures on the Jupyter server's own ``/metrics``.

It costs nothing before the first scrape, which imports what it needs. A scrape waits for nothing and queries no driver:
it returns the last sample, and triggers one for the next scrape if a GPU is attached and no viewer is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.status import Phase
from jupyter_gpu.model.view import Sample, View
from jupyter_gpu.server.monitoring.rules.peaks import Peaks
from jupyter_gpu.server.monitoring.rules.waits import Waits
from jupyter_gpu.server.rules.resizes import Resize
from jupyter_gpu.server.sampler import Sampler

OLD = 150.0
"""Seconds after which a sample is too old to be reported."""
DONE = "Done"
"""Outcome of a resize that was fulfilled."""


class MetricsCollector:
    """A collector of ``prometheus_client``."""

    def __init__(self, backend: Backend, sampler: Sampler, log: logging.Logger) -> None:
        self._backend, self._sampler, self._log = backend, sampler, log
        self._loop = asyncio.get_running_loop()
        self._resizes: Counter[str] = Counter()
        self._waits = Waits()
        self._peaks = Peaks()
        self._sample: Sample | None = None
        self._task: asyncio.Task[None] | None = None
        self._registry: Any = None
        self._failed = False
        self._see(backend.view())
        self._unsubscribe: Callable[[], None] = backend.subscribe(self._see)

    def begin(self) -> None:
        """Register with Prometheus' client, if the server has it."""
        client: Any = sys.modules.get("prometheus_client")
        if client is not None:
            self._registry = client.REGISTRY
            self._registry.register(self)

    def end(self) -> None:
        """Unregister; safe to call twice."""
        self._unsubscribe()
        if self._task:
            self._task.cancel()
        registry, self._registry = self._registry, None
        if registry is not None:
            with contextlib.suppress(KeyError):
                registry.unregister(self)

    def resized(self, resize: Resize) -> None:
        """Count a resize that ended."""
        self._resizes[resize.reason or DONE] += 1

    def describe(self) -> tuple[()]:
        """Describe nothing: otherwise the registry would collect once at registration."""
        return ()

    def collect(self) -> Iterator[Any]:
        """Yield our current figures. An error here does not affect the server's other figures."""
        try:
            from jupyter_gpu.server.monitoring.rules import figures

            yield from tuple(figures.families(self._figures(figures)))
            self._failed = False
            self._loop.call_soon_threadsafe(self._refresh)
        except Exception:
            if not self._failed:
                self._log.exception("The figures of the GPUs are missing from /metrics.")
            self._failed = True

    def _figures(self, figures: Any) -> Any:
        now = time.monotonic()
        sample = self._sample
        fresh = sample is not None and time.time() - sample.time <= OLD
        return figures.Figures(
            self._backend.view(),
            sample if fresh else None,
            self._waits.lasting(now),
            self._waits.total(now),
            dict(self._resizes),
        )

    def _see(self, view: View) -> None:
        waits = view.status.phase is Phase.WAITING and not view.status.limited  # free GPUs would not help
        self._waits.see(waits, time.monotonic())
        if not view.gpus:
            self._sample = None

    def _refresh(self) -> None:
        if self._registry is not None and self._task is None and self._backend.view().gpus:
            self._task = self._loop.create_task(self._take())

    async def _take(self) -> None:
        try:
            sample = await self._sampler.now()
            self._sample = sample._replace(shares=self._peaks.see(sample.shares))
        except GpuError:  # the sampler has logged it
            self._sample = None
        finally:
            self._task = None
