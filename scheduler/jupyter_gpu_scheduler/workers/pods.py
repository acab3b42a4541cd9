"""Follows notebooks and worker pods, creates and removes worker pods, and writes ``worker-status``.

Each step follows from what the API server has, so a process that is killed between any two is replaced by one that
goes on. What this process has just written counts at once, before its watch shows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections import defaultdict
from collections.abc import Callable, Mapping

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Conflict, Forbidden, Invalid, Kube, KubeError, NotFound, ObjectChange
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import WORKER_STATUS, encode
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.service import WorkerPart, WorkerState, WorkerStatus, WorkerStatuses

from .metrics import WorkerMetrics
from .rules.plan import Pace, Plan, plan
from .rules.records import Notebook, WorkerPod, read_notebook, read_worker, trim
from .rules.status import failed
from .rules.template import Template, Unfit, worker_name, worker_pod
from .settings import BoundSettings

RETRY_SECONDS = 1.0
"""Seconds before a call is repeated that the API server did not answer."""
UNSEEN_SECONDS = 5.0
"""Seconds for which a pod that was created counts as there, though the watch does not show it."""
AT_ONCE = 8
"""Notebooks that are seen to at the same time."""

_log = logging.getLogger(__name__)


class WorkerPods:
    """The worker pods of some namespaces; `begin` and `keep` are for the leader."""

    def __init__(
        self,
        kube: Kube,
        template: Template,
        bounds: BoundSettings,
        *,
        now: Callable[[], float] = time.time,
        metrics: WorkerMetrics | None = None,
    ) -> None:
        self._kube = kube
        self._template = template
        self._bounds = bounds
        self._now = now
        self._notebooks: dict[str, Notebook] = {}
        self._workers: dict[str, dict[str, WorkerPod]] = defaultdict(dict)
        """Worker pods by uid, by their notebooks."""
        self._notebook_of: dict[str, str] = {}
        """Uids of the notebooks of worker pods."""
        self._unseen: dict[tuple[str, str], tuple[str, float]] = {}
        """Pods that were created, by namespace and name: their notebooks, and until when they count as there."""
        self._paces: dict[Owner, Pace] = {}
        self._due: dict[str, float] = {}
        """Times at which notebooks are looked at, by uid."""
        self._busy: set[str] = set()
        """Notebooks that are seen to now."""
        self._woken = asyncio.Event()
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._metrics = metrics or WorkerMetrics()
        self._metrics.follow(self._notebooks.values)

    def changed(self, change: ObjectChange) -> None:
        """Take a change that a watch reports."""
        if change.kind == "removed":
            self._drop(objects.uid(change.object))
        else:
            self._take(change.object)

    def begin(self) -> None:
        """Have all notebooks looked at, and workers whose notebook is gone: another leader may not have done so."""
        for uid in (*self._notebooks, *self._workers):
            self._look(uid)

    async def keep(self) -> None:
        """Create and remove what is due, until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                self._woken.clear()
                now = self._now()
                for uid in [uid for uid, at in self._due.items() if at <= now and uid not in self._busy]:
                    del self._due[uid]
                    self._busy.add(uid)
                    tasks.create_task(self._see_to(uid))
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._seconds()):
                        await self._woken.wait()

    # --- what is known ------------------------------------------------------------------------------------------------

    def _take(self, pod: Mapping[str, object]) -> None:
        uid = objects.uid(pod)
        worker = read_worker(pod)
        if worker is not None:
            self._workers[worker.identity.notebook][uid] = worker
            self._notebook_of[uid] = worker.identity.notebook
            self._unseen.pop((worker.namespace, worker.name), None)
            self._metrics.seen(worker)
            self._look(worker.identity.notebook)
            return
        known = self._notebooks.get(uid)
        if known is not None and not objects.newer(pod, known.pod):
            return  # older than the answer to our own write
        notebook = read_notebook(pod)
        if notebook is not None:
            self._notebooks[uid] = notebook
        elif known is not None:
            del self._notebooks[uid]
        if notebook is not None or known is not None:
            self._look(uid)

    def _drop(self, uid: str) -> None:
        notebook = self._notebook_of.pop(uid, uid)
        if worker := self._workers[notebook].pop(uid, None):
            self._metrics.gone(worker.namespace, worker.name)
        if not self._workers[notebook]:
            del self._workers[notebook]
        self._notebooks.pop(uid, None)
        self._look(notebook)

    def _look(self, notebook: str, at: float = 0.0) -> None:
        """Have a notebook looked at, at a time or at once."""
        self._due[notebook] = min(self._due.get(notebook, math.inf), at)
        self._woken.set()

    def _seconds(self) -> float | None:
        """Return the seconds until something is due; ``None``: nothing is."""
        times = [at for uid, at in self._due.items() if uid not in self._busy]
        return max(min(times) - self._now(), 0.001) if times else None

    # --- one notebook -------------------------------------------------------------------------------------------------

    async def _see_to(self, uid: str) -> None:
        """Take the steps that are due for one notebook; repeat them later where the API server does not answer."""
        try:
            async with self._slots:
                notebook = self._notebooks.get(uid)
                wanted = plan(notebook, tuple(self._workers.get(uid, {}).values()), self._now(), self._bounds.per_pod)
                if notebook is not None and notebook.problem:
                    _log.warning("Workers of %s stay as they are: %s", _words(notebook), notebook.problem)
                if wanted.look_at < math.inf:
                    self._look(uid, wanted.look_at)
                await self._follow(notebook, wanted)
        except KubeError as error:
            _log.warning("Workers can't be changed now: %s", error)
            self._look(uid, self._now() + RETRY_SECONDS)
        finally:
            self._busy.discard(uid)
            self._woken.set()

    async def _follow(self, notebook: Notebook | None, wanted: Plan) -> None:
        statuses = wanted.statuses
        if notebook is not None and statuses is not None:
            await self._tell(notebook, statuses)
        for worker in wanted.remove:
            faults.point("workers:removing")
            await self._kube.delete(paths.pod(worker.namespace, worker.name), uid=worker.uid)
            _log.info("Worker pod %s/%s is removed.", worker.namespace, worker.name)
        for part in wanted.create:
            assert notebook is not None
            await self._create(notebook, part)

    async def _tell(self, notebook: Notebook, statuses: Mapping[str, WorkerStatus]) -> None:
        """Write what is told about the workers, if it is new."""
        if dict(statuses) == dict(notebook.statuses) and notebook.told == bool(statuses):
            return
        text = encode(WorkerStatuses(statuses)) if statuses else None
        body = {"metadata": {"uid": notebook.uid, "annotations": {WORKER_STATUS: text}}}
        try:
            found = await self._kube.patch(paths.pod(notebook.namespace, notebook.name, "status"), body)
        except (NotFound, Conflict):
            return  # it is gone, or another one has its name: the watch will say so
        self._metrics.told(notebook.statuses, statuses)
        faults.point("workers:told")
        if notebook.uid in self._notebooks:
            self._take(trim(found))

    async def _create(self, notebook: Notebook, part: WorkerPart) -> None:
        """Create a worker pod, or say why not. Without an answer it may be there: it counts as that for a while."""
        name = notebook.namespace, worker_name(notebook.name, notebook.uid, part.id)
        now = self._now()
        if (until := self._unseen.get(name, ("", 0.0))[1]) > now:
            self._look(notebook.uid, until)
            return
        if why := self._why_too_many(notebook.owner):
            await self._refuse(notebook, part, why)
            return
        if wait := self._wait(notebook.owner):
            self._look(notebook.uid, now + wait)
            return
        self._unseen[name] = notebook.uid, now + UNSEEN_SECONDS
        try:
            body = worker_pod(notebook, part, self._template)
            self._metrics.created(*name)
            faults.point("workers:creating")
            await self._kube.create(paths.pods(notebook.namespace), body)
        except (Forbidden, Invalid, Conflict, Unfit) as error:
            del self._unseen[name]
            self._metrics.gone(*name)
            await self._refuse(notebook, part, error.message if isinstance(error, KubeError) else str(error))
        else:
            faults.point("workers:created")
            _log.info("Worker pod %s/%s is created for node %s.", *name, part.node)

    async def _refuse(self, notebook: Notebook, part: WorkerPart, message: str) -> None:
        """Say why a worker is not created; it is tried again later."""
        _log.warning("Worker %s of %s is refused: %s", part.id, _words(notebook), message)
        now = self._notebooks.get(notebook.uid, notebook)
        refused = failed(now.statuses.get(part.id), WorkerState.REFUSED, message, self._now())
        await self._tell(now, {**now.statuses, part.id: refused})
        self._look(notebook.uid)

    # --- bounds -------------------------------------------------------------------------------------------------------

    def _why_too_many(self, owner: Owner) -> str:
        """Return why no more workers are created for an owner; empty: they are."""
        mine = {uid for uid, notebook in self._notebooks.items() if notebook.owner == owner}
        count = sum(len(self._workers.get(uid, ())) for uid in mine)
        count += sum(uid in mine and until > self._now() for uid, until in self._unseen.values())
        most = self._bounds.per_owner
        return f"The notebooks of one user may have {most} workers together, and have {count}." if count >= most else ""

    def _wait(self, owner: Owner) -> float:
        """Return the seconds until an owner may have one more worker created; 0: it is counted, and may be created."""
        now, bounds = asyncio.get_running_loop().time(), self._bounds
        pace = self._paces.get(owner, Pace(float(bounds.burst), now)).after(now, bounds.burst, bounds.per_second)
        if pace.left < 1:
            return (1 - pace.left) / bounds.per_second
        self._paces[owner] = pace.taken()
        return 0.0


def _words(notebook: Notebook) -> str:
    return f"{notebook.namespace}/{notebook.name}"
