"""The scheduler process: makes all parts and runs them.

If a part that should run for ever ends, the process ends and is restarted: half a scheduler is worse than none.
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import time
from collections.abc import Callable, Coroutine, Mapping
from functools import partial

from jupyter_gpu.common.parts import first_to_end
from jupyter_gpu.common.status_server import StatusServer
from jupyter_gpu.kube import (
    Kube,
    LeaderLease,
    LeaseTimes,
    ObjectChange,
    Recorder,
    Reflector,
    Selection,
    credentials,
    identity,
)
from jupyter_gpu.kube.rules import paths
from jupyter_gpu_scheduler.rules.state.records import trim_node, trim_pod

from .accounts import AccountWriter
from .binder import Binder
from .cluster_cache import ClusterCache
from .controller import Controller
from .extender import Extender, ExtenderServer
from .job_endings import JobEndings
from .leader_endpoint import LeaderEndpoint
from .limit_statuses import LimitStatusWriter
from .limit_watch import LimitWatch
from .metrics import SchedulerMetrics
from .notices import LimitNotices
from .settings import SchedulerSettings
from .writer import AllocationWriter

_log = logging.getLogger(__name__)


class SchedulerProcess:
    """All parts of one scheduler. Made and run once, on one event loop."""

    def __init__(self, kube: Kube, settings: SchedulerSettings, environ: Mapping[str, str] = os.environ) -> None:
        self._kube = kube
        self._settings = settings
        self._environ = environ
        self._namespace = settings.lease.namespace or environ.get("POD_NAMESPACE") or kube.namespace or "default"
        self.cache = ClusterCache(self._changed, settings, complete=False)
        self.metrics = SchedulerMetrics(self.cache.snapshot, self.cache.counters.text)
        self._recorder = Recorder(kube, "jupyter-gpu-scheduler", host=environ.get("POD_NAME", ""))
        self._writer = AllocationWriter(kube, settings.writes, self.metrics, self._may_write)
        self.controller = Controller(
            self.cache,
            self._writer,
            self._recorder,
            self.metrics,
            settings.policy,
            wake_seconds=settings.wake_seconds,
            position_seconds=settings.line.place_seconds,
        )
        binder = Binder(kube, self.cache, self._writer, self.metrics)
        self._answers = Extender(
            self.cache, self.controller.waiting, binder, settings.policy, self._why_unready, settings.extender
        )
        self.extender = ExtenderServer(self._answers, settings.extender, self.metrics)
        self.status = self._status_server()
        # Finished pods are watched, too: they may hold GPUs that are not closed yet.
        self._pods = self._follow("pods", paths.pods(), trim_pod, self.cache.pod_changed)
        self._nodes = self._follow("nodes", paths.nodes(), trim_node, self.cache.node_changed)
        self._limits = LimitWatch(
            kube, self.cache.limit_changed, self.cache.limit_removed, partial(self._count_trouble, "limits")
        )
        job_kinds = frozenset(settings.limits.job_kinds)
        self._accounts = AccountWriter(kube, self.cache, self.metrics, partial(self._count_trouble, "accounts"))
        self._reports = (
            self._accounts,
            LimitStatusWriter(kube, self.cache, self._limits, self.metrics),
            LimitNotices(self.cache, self._limits, self._recorder, job_kinds),
            JobEndings(kube, self.cache, self._recorder, self.metrics, self._may_write, job_kinds),
            self.cache.counters,
        )
        self.metrics.follow_notebooks(self.cache.notebooks.figures)
        self.metrics.follow_limits(lambda: len(self.cache.owners.limits), self._limits)
        self._lease = self._leader_lease()
        self._began = time.monotonic()

    def _status_server(self) -> StatusServer:
        settings = self._settings.status
        return StatusServer(
            settings.address,
            settings.port,
            alive=self._why_silent,
            ready=self._why_unsynced,
            metrics=self.metrics.text if settings.metrics else None,
        )

    def _leader_lease(self) -> LeaderLease:
        settings = self._settings.lease
        times = LeaseTimes(settings.duration_seconds, settings.renew_seconds, settings.retry_seconds)
        return LeaderLease(self._kube, self._namespace, settings.name, identity(self._environ), times)

    async def run(self, stop: asyncio.Event) -> None:
        """Run until ``stop``; raises what ended it otherwise. The lease is given back in any case."""
        self.status.start()
        self.extender.start()
        _log.info("Extender on port %d, status on port %d.", self.extender.port, self.status.port)
        parts: dict[str, Coroutine[object, object, object]] = {
            "the watch of pods": self._pods.run(),
            "the watch of nodes": self._nodes.run(),
            "the watch of limits": self._limits.run(),
            "the watch of accounts": self._accounts.run(),
            "the election": self._lease.run(self._lead),
            "the certificates": self.extender.run(),
            "the preparation of answers": self._prepare(),
            "stop": stop.wait(),
        }
        try:
            if ended := await first_to_end(parts) - {"stop"}:  # the lease is given back by the election
                raise RuntimeError(f"{', '.join(sorted(ended))} ended")
        finally:
            await self._recorder.close()
            await self.extender.close()
            await self.status.close()

    async def _prepare(self) -> None:
        """Prepare answers once the cluster is known, then wait: a replica that does not lead yet is ready, too."""
        await self._wait_until_known()
        gc.freeze()  # most of what is known now stays: the garbage collector need not scan it
        await self._answers.warm()
        await asyncio.Event().wait()

    async def _lead(self) -> None:
        """Lead after an election, once everything is known."""
        await self._wait_until_known()
        for report in self._reports:
            report.begin()
        name, address = self._settings.extender.endpoint_slice, self._environ.get("POD_IP", "")
        where = (self._namespace, name, address, self.extender.port)
        endpoint = LeaderEndpoint(self._kube, self._writer, *where) if name and address else None
        if endpoint:
            await endpoint.publish()
        _log.info("The cluster is known after %.1f s; it leads.", time.monotonic() - self._began)
        async with asyncio.TaskGroup() as tasks:
            beside = [tasks.create_task(report.keep()) for report in self._reports]
            if endpoint:
                beside.append(tasks.create_task(endpoint.keep()))
            try:
                await self.controller.lead()
            finally:
                self.extender.drop()
                for task in beside:
                    task.cancel()

    async def _wait_until_known(self) -> None:
        """Wait until pods, nodes, limits and accounts are known."""
        for watch in (self._pods, self._nodes, self._limits, self._accounts):
            await watch.synced.wait()
        self.cache.begin()

    def _follow(
        self,
        what: str,
        path: str,
        trim: Callable[[dict[str, object]], dict[str, object]],
        on_change: Callable[[ObjectChange], None],
    ) -> Reflector:
        """Return a reflector that begins with the newest state: a cache of the API server may lack the last writes.

        The first list comes page by page, so that memory never holds more untrimmed objects than one page has.
        """
        return Reflector(
            self._kube,
            Selection(path, trim=trim),
            on_change=on_change,
            on_trouble=partial(self._count_trouble, what),
            newest=True,
        )

    def _may_write(self) -> bool:
        return self._lease.leading and self.controller.leading

    def _changed(self) -> None:
        self.controller.changed()

    def _count_trouble(self, what: str, message: str) -> None:
        if message:
            self.metrics.watch_troubles.labels(what).inc()

    # --- checks for the probes and the extender; each returns why it fails, else an empty text --------------------

    def _why_unsynced(self) -> str:
        if not (self._pods.synced.is_set() and self._nodes.synced.is_set()):
            return "The cluster is not known yet."
        for what, watch in (("limits (GpuLimits)", self._limits), ("accounts (GpuAccounts)", self._accounts)):
            if not watch.synced.is_set():
                return f"The {what} are not known yet. {watch.trouble}".strip()
        return self._why_silent()

    def _why_unready(self) -> str:
        if not self._may_write():
            return "This replica of the jupyter-gpu scheduler does not lead; the pod is tried again."
        return self._why_unsynced()

    def _why_silent(self) -> str:
        since = time.monotonic() - self._began
        silence = max(min(watch.fresh_seconds, since) for watch in (self._pods, self._nodes))
        if silence > self._settings.silence_seconds:
            return f"The API server was not heard for {silence:.0f} s."
        return ""


async def run(settings: SchedulerSettings, stop: asyncio.Event) -> None:
    """Run the whole process until ``stop``."""
    async with Kube(credentials.load(settings.kubeconfig), user_agent="jupyter-gpu-scheduler") as kube:
        await SchedulerProcess(kube, settings).run(stop)
