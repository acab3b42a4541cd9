"""Writes into the status of each ``GpuLimit`` what its owners have and wait for, and what is wrong with it.

Administrators read it; nothing is decided by it. The members of groups in the same status belong to the hub's service:
a merge patch of other fields leaves them as they are.

What is wrong is written within `FLUSH_SECONDS`, as is the first change of use. The use of one limit is written every
`AGAIN_SECONDS` at most, as the cap's changes with every pod of the cluster.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Kube, KubeError, NotFound
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.limits.conflicts import LimitCondition, conditions

from .cluster_cache import ClusterCache
from .limit_watch import LimitWatch
from .metrics import SchedulerMetrics
from .rules.limits.limit_status import UseByLimit, status_changes

FLUSH_SECONDS = 0.5
AGAIN_SECONDS = 5.0
RETRY_SECONDS = 30.0
"""Seconds before a status that could not be written is tried again."""
CONCURRENT = 4
"""Statuses that are written at once."""

_log = logging.getLogger(__name__)


class LimitStatusWriter:
    """The statuses of the limits of one process; `begin` and `keep` are for the leader."""

    def __init__(
        self,
        kube: Kube,
        cache: ClusterCache,
        watch: LimitWatch,
        metrics: SchedulerMetrics,
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._kube = kube
        self._owners = cache.owners
        self._watch = watch
        self._metrics = metrics
        self._now = now
        self._changed_owners = cache.owners.follow()
        self._use = UseByLimit(cache.owners.limits)
        self._conditions: Mapping[str, tuple[LimitCondition, ...]] = {}
        self._version = -1
        """Version of the limits that the conditions and sums are about."""
        self._due: dict[str, float] = {}
        """Names of limits to be written, and when, by the event loop's clock."""
        self._times: dict[str, float] = {}
        """Time at which the status of a limit was written last."""

    def begin(self) -> None:
        """Have all statuses compared: another leader may have written them."""
        self._version = -1
        self._due.clear()
        self._changed_owners.take()
        for owner in self._owners.known():
            self._use.put(owner, self._owners.use(owner))

    async def keep(self) -> None:
        """Write what changes, until cancelled."""
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._collect()
            await self._write_due()

    def _collect(self) -> None:
        """Note the limits whose status may have changed."""
        now = asyncio.get_running_loop().time()
        limits, changed = self._owners.limits, self._changed_owners.take()
        if limits.version != self._version:
            self._version = limits.version
            self._conditions = conditions(tuple(limits))
            changed = self._owners.known()
            names = [limit.object_name for limit in limits]
            self._due.update(dict.fromkeys(names, now))
            self._times = {name: self._times[name] for name in names if name in self._times}
        for owner in changed:
            for name in self._use.put(owner, self._owners.use(owner)):
                self._due.setdefault(name, max(now, self._times.get(name, 0.0) + AGAIN_SECONDS))
        for name in self._watch.take_changed():
            self._due.setdefault(name, now)

    async def _write_due(self) -> None:
        slots = asyncio.Semaphore(CONCURRENT)

        async def write(name: str, patch: dict[str, Any]) -> None:
            async with slots:
                await self._write(name, patch)

        now = asyncio.get_running_loop().time()
        names = [name for name, when in self._due.items() if when <= now]
        async with asyncio.TaskGroup() as tasks:
            for name in names:
                del self._due[name]
                if patch := self._patch(name):
                    tasks.create_task(write(name, patch))

    def _patch(self, name: str) -> dict[str, Any]:
        body = self._watch.known(name)
        if body is None:
            return {}
        status = body.get("status")
        return status_changes(
            status if isinstance(status, Mapping) else {},
            self._use.of(name),
            self._conditions.get(name, ()),
            generation=objects.generation(body),
            now=self._now(),
        )

    async def _write(self, name: str, patch: dict[str, Any]) -> None:
        loop = asyncio.get_running_loop()
        faults.point("scheduler:limit-status")
        try:
            await self._kube.patch(paths.limit(name, "status"), {"status": patch})
        except NotFound:
            return  # it was removed just now
        except KubeError as error:
            self._metrics.writes.labels("limit-status", "failed").inc()
            _log.warning("The status of the limit %s can't be written now: %s", name, error.message)
            self._due.setdefault(name, loop.time() + RETRY_SECONDS)
        else:
            self._metrics.writes.labels("limit-status", "done").inc()
        self._times[name] = loop.time()
