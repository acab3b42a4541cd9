"""Ends pods of preemptible Jobs whose GPUs others wait for, by the API: SIGTERM, their termination grace, then the end.

A pod is deleted only in the version that was decided about, so a Job that gave its GPUs back meanwhile goes on. The
decision follows from the pod's record alone, so the next leader makes the same one. A pod that may not be deleted
drains like any other: its GPUs stay its own until they are closed.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Kube, KubeError, Recorder
from jupyter_gpu.kube.rules import paths
from jupyter_gpu_scheduler.rules.state.records import PodRecord
from jupyter_gpu_scheduler.rules.wire import pod_reference

from .cluster_cache import ClusterCache
from .metrics import SchedulerMetrics
from .rules.limits.job_end import JobEnd, job_end

LOOK_SECONDS = 0.5
RETRY_SECONDS = 1.0
"""Seconds before a pod that did not end is asked again."""
ENDED = "GpuJobEnded"
"""Reason of Events."""

_log = logging.getLogger(__name__)


class JobEndings:
    """The ends of pods by one process; `begin` and `keep` are for the leader.

    ``may_write``: whether it still leads. ``kinds``: controllers whose pods count as those of Jobs.
    """

    def __init__(
        self,
        kube: Kube,
        cache: ClusterCache,
        recorder: Recorder,
        metrics: SchedulerMetrics,
        may_write: Callable[[], bool],
        kinds: Collection[str],
        *,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._recorder = recorder
        self._metrics = metrics
        self._may_write = may_write
        self._kinds = kinds
        self._now = now
        self._changed = cache.owners.follow()
        self._noticed: set[str] = set()
        """Uids of pods of Jobs from which something is reclaimed."""
        self._retry_at: dict[str, float] = {}
        """Times at which pods that were asked to end, or could not be, are asked again."""

    def begin(self) -> None:
        """Have all owners looked at: their pods may be due since another leader."""
        for owner in self._cache.owners.known():
            self._changed.add(owner)

    async def keep(self) -> None:
        """End what is due, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """End the pods that are due now."""
        for owner in self._changed.take():
            self._noticed.update(
                state.uid for state in self._cache.snapshot.owned(owner) if self._is_noticed(state.uid)
            )
        for uid in tuple(self._noticed):
            if not self._is_noticed(uid):
                self._noticed.discard(uid)
                self._retry_at.pop(uid, None)
            elif not self._cache.in_flight(uid) and self._retry_at.get(uid, 0.0) <= self._now():
                await self._end_if_due(uid)

    def _is_noticed(self, uid: str) -> bool:
        """Tell whether something is reclaimed from a Job's pod, now and not only when its record was written."""
        record, state = self._cache.record(uid), self._cache.snapshot.pod(uid)
        reclaims = state is not None and state.pod_limit is not None and state.pod_limit.reclaimed
        if record is None or record.state.gone or not reclaims:
            return False
        return record.job_grace(self._kinds) is not None

    async def _end_if_due(self, uid: str) -> None:
        record, now = self._cache.record(uid), self._now()
        end = job_end(record.state, record.job_grace(self._kinds), now) if record else None
        if record and end and end.at <= now and self._may_write():
            done = await self._end(record, end)
            self._metrics.writes.labels("end", "done" if done else "refused").inc()
            self._retry_at[uid] = self._now() + RETRY_SECONDS

    async def _end(self, record: PodRecord, end: JobEnd) -> bool:
        """Ask a pod to end; return whether that was accepted. It is not if the pod changed meanwhile."""
        pod = record.state
        path, version = paths.pod(pod.namespace, pod.name), record.resource_version
        faults.point("scheduler:ending")
        try:
            await self._kube.delete(path, uid=pod.uid, resource_version=version, grace=end.seconds)
        except KubeError as error:
            if pod.uid not in self._retry_at:
                _log.warning("Pod %s/%s of a preemptible Job can't be ended now: %s", pod.namespace, pod.name, error)
            return False
        message = (
            "Others wait for GPUs that come first to them, and this preemptible Job has them open. Its pod gets SIGTERM"
            f" now, and is killed after {end.seconds} s. If its controller makes another one, that waits in line."
        )
        self._recorder.event(pod_reference(pod, version), "Warning", ENDED, message)
        return True
