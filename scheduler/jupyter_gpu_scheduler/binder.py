"""Binds new pods: node and GPUs in one transaction, also where another node gives the GPUs by a worker.

The GPUs are reserved before the Binding is sent, and stay reserved until its result is known: the watch shows the pod
on its node, or the API server says that the pod is not there. A repeated request, even while the first is under way,
gets the same answer and does nothing twice.
"""

from __future__ import annotations

import asyncio
import logging
import time

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Conflict, Kube, KubeError, NotFound
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu_scheduler.rules.new_pods.admit import admit
from jupyter_gpu_scheduler.rules.queue.aging import stamped
from jupyter_gpu_scheduler.rules.state.records import PodRecord
from jupyter_gpu_scheduler.rules.wire import BindingArgs, binding

from .cluster_cache import ClusterCache
from .metrics import SchedulerMetrics
from .pending_write import PendingWrite
from .writer import PASSING, AllocationWriter

TRIES = 3
"""Attempts at one Binding, when the pod changes just before each."""
SHOWN_SECONDS = 30.0
"""Seconds within which the watch should show a pod that was read directly; then the pod is read again."""

_log = logging.getLogger(__name__)


class Binder:
    """The Bindings of one process."""

    def __init__(self, kube: Kube, cache: ClusterCache, writer: AllocationWriter, metrics: SchedulerMetrics) -> None:
        self._kube = kube
        self._cache = cache
        self._writer = writer
        self._metrics = metrics
        self._running: dict[str, tuple[str, asyncio.Task[str]]] = {}
        self._awaited: set[asyncio.Task[None]] = set()

    async def bind(self, question: BindingArgs) -> str:
        """Bind a pod; return why it could not be bound, empty if it is. Cancelling this does not cancel the Binding."""
        node, task = self._running.get(question.uid, ("", None))
        if task is None:
            node, task = question.node, asyncio.create_task(self._bind(question))
            self._running[question.uid] = node, task
            task.add_done_callback(lambda _: self._running.pop(question.uid, None))
        if node != question.node:
            return f"The pod is being bound to {node}."
        return await asyncio.shield(task)

    async def _bind(self, question: BindingArgs) -> str:
        for _ in range(TRIES):
            try:
                error = await self._try(question)
            except GpuError as refused:
                error = refused.message
            if error is not None:
                self._metrics.writes.labels("binding", "refused" if error else "done").inc()
                return error
        self._metrics.writes.labels("binding", "conflict").inc()
        return "The pod changes all the time; it is tried again."

    async def _try(self, question: BindingArgs) -> str | None:
        """Try one Binding; return the answer, or ``None`` if the pod has changed meanwhile: then try again."""
        uid, node = question.uid, question.node
        if self._cache.record(uid) is None:  # kube-scheduler was faster than our watch
            await self._read_unseen(question)
        if (
            not self._writer.may_write
        ):  # the reads before this one may have taken minutes; from here on nothing is waited for
            return "This replica of the jupyter-gpu scheduler does not lead any more; the pod is tried again."
        record, state = self._cache.record(uid), self._cache.snapshot.pod(uid)
        if record is None or state is None or record.state.gone:
            return "The pod is gone."
        if record.state.node:
            return "" if record.state.node == node else f"The pod is bound to {record.state.node} already."
        notebooks = self._cache.notebooks
        admission = admit(self._cache.snapshot, notebooks.chooser, state, node)
        if isinstance(admission, GpuError):
            raise admission
        if admission.part:
            notebooks.bind(state, node, admission.part)
        pending_write = self._cache.assume(uid, stamped(admission.allocated, time.time()), node)
        faults.point("scheduler:reserved")
        try:
            body = binding(record.state, node, record.resource_version, pending_write.allocated, pending_write.service)
            await self._kube.create(paths.pod(question.namespace, question.name, "binding"), body)
        except NotFound:
            self._end(uid, pending_write)
            return "The pod is gone."
        except (Conflict, *PASSING) as error:
            return await self._find_out(question, pending_write, error)
        except KubeError as error:
            self._end(uid, pending_write)
            return error.message
        except BaseException:
            self._end(uid, pending_write)
            raise
        faults.point("scheduler:bound")
        self._cache.bound(uid, pending_write)
        return ""

    async def _find_out(self, question: BindingArgs, pending_write: PendingWrite, error: KubeError) -> str | None:
        """Find out the result of a Binding that failed or got no answer; until then its GPUs stay reserved."""
        _log.warning("Pod %s/%s: its Binding failed: %s", question.namespace, question.name, error)
        found = await self._writer.read(question.namespace, question.name, question.uid)
        bound = found.state.node if found else ""
        self._end(question.uid, pending_write, found)
        if found is None:
            return "The pod is gone."
        if not bound:
            return None if isinstance(error, Conflict) else error.message
        return "" if bound == question.node else f"The pod is bound to {bound} already."

    def _end(self, uid: str, pending_write: PendingWrite, found: PodRecord | None = None) -> None:
        """End a Binding that was not done, or of which the pod says what was done."""
        self._cache.notebooks.withdraw(uid)
        self._cache.finish_write(uid, pending_write, found)

    async def _read_unseen(self, question: BindingArgs) -> None:
        found = await self._writer.read(question.namespace, question.name, question.uid)
        if found is None:
            return
        self._cache.add_unseen(found)
        if self._cache.is_unseen(question.uid):
            task = asyncio.create_task(self._until_shown(question))
            self._awaited.add(task)
            task.add_done_callback(self._awaited.discard)

    async def _until_shown(self, question: BindingArgs) -> None:
        """Read a pod until the watch shows it, as one that came and went while the watch was cut would keep GPUs."""
        while self._cache.is_unseen(question.uid):
            await asyncio.sleep(SHOWN_SECONDS)
            if not self._cache.is_unseen(question.uid):
                return
            if await self._writer.read(question.namespace, question.name, question.uid) is None:
                self._cache.forget(question.uid)
