"""Writes ``allocated`` of pods: a bounded number at once, with preconditions, retried while the API server is away.

A write changes only the very version of the pod that was decided about (uid and resource version). If the pod has
changed, nothing is written: the pod is read again, for another decision.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Conflict, Kube, KubeError, NotFound, TooMany, Unauthorized, Unavailable
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.service import Service, WorkerService
from jupyter_gpu_scheduler.rules.state.records import PodRecord, read_pod
from jupyter_gpu_scheduler.rules.wire import allocated_patch

from .metrics import SchedulerMetrics
from .settings import WriteSettings

_log = logging.getLogger(__name__)

PASSING = (Unavailable, TooMany, Unauthorized)
"""Failures that pass: a restart of the API server, too many requests, a token that is being replaced."""


@dataclass(frozen=True, slots=True)
class WriteResult:
    """The result of a write."""

    kind: Literal["done", "conflict", "gone", "refused"]
    found: PodRecord | None = None
    """The pod as it is now, where that is known."""
    message: str = ""
    """Reason why it was refused."""


class AllocationWriter:
    """The writer of decisions. It calls ``may_write`` before each try: only the leader writes."""

    def __init__(
        self, kube: Kube, settings: WriteSettings, metrics: SchedulerMetrics, may_write: Callable[[], bool]
    ) -> None:
        self._kube = kube
        self._settings = settings
        self._metrics = metrics
        self._may_write = may_write
        self._slots = asyncio.Semaphore(settings.concurrent)

    @property
    def may_write(self) -> bool:
        """Whether this process leads, and may write."""
        return self._may_write()

    async def write(
        self, record: PodRecord, allocated: Allocated, service: Service | WorkerService | None = None
    ) -> WriteResult:
        """Write ``allocated``, and ``service`` if given; retry until the API server accepts or refuses it."""
        faults.point("scheduler:decided")
        result = await self._until_answered(record, allocated, service)
        self._metrics.writes.labels("allocated", result.kind).inc()
        return result

    async def read(self, namespace: str, name: str, uid: str) -> PodRecord | None:
        """Return a pod as it is now, ``None`` if it is gone; retry until the API server answers."""
        pauses = self.pauses()
        while True:
            try:
                found = read_pod(await self._kube.get(paths.pod(namespace, name)))
            except NotFound:
                return None
            except KubeError as error:
                _log.warning("Pod %s/%s can't be read now: %s", namespace, name, error)
                await asyncio.sleep(pauses())
            else:
                return found if found.state.uid == uid else None

    def pauses(self) -> Callable[[], float]:
        """Return a function that returns the seconds before the next try: doubling, with jitter to spread the tries."""
        tries = 0

        def pause() -> float:
            nonlocal tries
            seconds = min(self._settings.backoff_seconds * 2.0 ** min(tries, 16), self._settings.backoff_max_seconds)
            tries += 1
            return seconds * random.uniform(0.5, 1)  # noqa: S311 no secret

        return pause

    async def _until_answered(
        self, record: PodRecord, allocated: Allocated, service: Service | WorkerService | None
    ) -> WriteResult:
        pod = record.state
        path = paths.pod(pod.namespace, pod.name, "status")
        body = allocated_patch(pod.uid, record.resource_version, allocated, service)
        pauses = self.pauses()
        while self._may_write():
            try:
                async with self._slots:  # free again during the pause before the next try
                    found = read_pod(await self._kube.patch(path, body), record)
            except NotFound:
                return WriteResult("gone")
            except Conflict:  # another write was faster, or an earlier try succeeded without an answer
                now = await self.read(pod.namespace, pod.name, pod.uid)
                return WriteResult("conflict", now) if now else WriteResult("gone")
            except PASSING as error:
                self._metrics.writes.labels("allocated", "retried").inc()
                _log.warning("Pod %s/%s can't be written now: %s", pod.namespace, pod.name, error)
                await asyncio.sleep(pauses())
            except KubeError as error:
                return WriteResult("refused", message=error.message)
            else:
                faults.point("scheduler:written")
                return WriteResult("done", found)
        return WriteResult("refused", message="This process does not lead any more.")
