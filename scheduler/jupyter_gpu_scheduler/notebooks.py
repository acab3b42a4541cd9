"""Notebooks whose wishes several nodes may serve, and their workers: which pod is whose, and their ``service``.

The state of a pod in the snapshot follows from its record and from ``service`` (`rules.pairs.workers`). A ``service``
that is decided and not confirmed yet counts as written, as a decision about GPUs does. No I/O.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Attached, Requested
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.service import Service, WorkerPart, WorkerService
from jupyter_gpu_scheduler.rules.pairs.choose import PairChooser
from jupyter_gpu_scheduler.rules.pairs.permits import LimitsOf
from jupyter_gpu_scheduler.rules.pairs.reach import Reach
from jupyter_gpu_scheduler.rules.pairs.split import Splitter, Worker, may_be_split, on_own_node
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.pairs.workers import (
    WorkerPod,
    accepted,
    as_worker,
    broken,
    ends_at,
    moved,
    own_part,
    promise,
    promise_uid,
    settled,
)
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import PodRecord, RemoteRecord
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, MEMORY, ClusterSnapshot

from .clocks import Clocks
from .settings import NotebookWorkerSettings

STEPS = 32
"""The most steps in which one wish is divided at once; the next look goes on from there."""
SILENCE_SECONDS = 10.0
"""Seconds in which the worker controller should tell something of a new worker."""

Known = Mapping[str, PodRecord]


class RemoteFigures(NamedTuple):
    """Figures about GPUs of other nodes."""

    parts: int
    """Parts of notebooks' wishes that other nodes serve."""
    allocated: int
    """Milli that workers have of these."""
    owed: int
    """Milli that they do not have yet."""
    waiting: int
    """Notebooks to which another node could be of use, once it has room."""


class Notebooks:
    """The notebooks of one cache and their workers; ``records`` are the cache's pods, by uid."""

    def __init__(
        self,
        snapshot: ClusterSnapshot,
        records: Known,
        settings: NotebookWorkerSettings,
        rules: PairPolicy,
        clocks: Clocks,
        limits_of: LimitsOf = lambda _: None,
        may_leave: Callable[[Owner], bool] = lambda _: True,
    ) -> None:
        self._snapshot = snapshot
        self._limits_of = limits_of
        self._may_leave = may_leave
        self._records = records
        self._namespaces = frozenset(settings.namespaces)
        self._grace = settings.grace_seconds
        self._asks = {CPU: settings.cpu, MEMORY: settings.memory}
        self._splitter = Splitter(snapshot, replace(rules, worker=self._asks), settings.per_pod, limits_of)
        self._reach = Reach(snapshot, settings.per_pod)
        self._now = clocks.now
        self._elapsed = clocks.elapsed
        self._asked: dict[str, Requested] = {}  # the whole wishes of notebooks with workers
        self._workers: dict[str, dict[str, str]] = {}  # uids of workers' pods, by notebook and id
        self._due: dict[str, Service | WorkerService] = {}  # decided, and not confirmed yet
        self._promised: dict[str, set[str]] = {}  # uids in the snapshot that stand for workers, by notebook
        self._stirred: dict[str, None] = {}
        self._waiting: set[str] = set()  # another node could be of use for them, once it has room
        self._ends: dict[str, float] = {}  # when a worker of a notebook is kept no longer
        self._named: dict[str, float] = {}  # promises: since when they are there
        self._moved: list[tuple[str, str]] = []  # notebooks with a part that left a worker which failed, and a sentence
        self._kept_home: set[Owner] = set()  # a limit keeps their pods on their own nodes

    # --- records ------------------------------------------------------------------------------------------------------

    def seen(self, before: PodRecord | None, record: PodRecord | None) -> tuple[str, ...]:
        """Note a new version of a pod, ``None``: it is gone; return the pods whose state in the snapshot follows."""
        known = record or before
        assert known is not None
        uid, remote = known.state.uid, known.remote
        if remote is None:
            return (uid,) if before and before.remote else ()  # somebody took its annotations away
        if remote.identity:
            found = self._workers.setdefault(remote.identity.notebook, {})
            if record:
                found[remote.identity.id] = uid
            elif found.get(remote.identity.id) == uid:
                del found[remote.identity.id]
            self._confirm(uid, remote.accepts if record else None, gone=record is None)
            self._stirred[remote.identity.notebook] = None
            return (remote.identity.notebook,)
        self._confirm(uid, remote.service, gone=record is None)
        self._stirred[uid] = None
        if record is None:
            self._waiting.discard(uid)
            self._stirred.pop(uid, None)
            self._asked.pop(uid, None)
            self._ends.pop(uid, None)
            return tuple(self._workers.get(uid, {}).values())
        return () if before and before.remote == remote else (uid,)

    def _confirm(self, uid: str, service: Service | WorkerService | None, *, gone: bool) -> None:
        if gone or self._due.get(uid) == service:
            self._due.pop(uid, None)

    # --- pods without a node ------------------------------------------------------------------------------------------

    @property
    def chooser(self) -> PairChooser:
        """The choice of other nodes."""
        return self._splitter.chooser

    @property
    def has_workers(self) -> bool:
        """Whether notebooks of any namespace may have GPUs of other nodes."""
        return bool(self._namespaces)

    def unbound(self, state: PodState) -> PodState:
        """Return a pod that has no node, and is no worker, as decisions see it."""
        asked = state.requested
        anywhere = bool(state.slots) and self._allowed(state) and (asked is None or may_be_split(asked.wish))
        found = own_part(state, ())
        return replace(found, anywhere=True) if anywhere else found

    def bind(self, pod: PodState, node: str, part: WorkerPart) -> None:
        """Decide the ``service`` of a pod that is being bound to ``node``, while another node gives it GPUs."""
        assert pod.requested
        there = replace(pod, node=node)
        reach = (self._reach.elsewhere(there), self._reach.kinds(there))
        self._due[pod.uid] = Service(pod.requested.generation, (part,), *reach)

    def withdraw(self, uid: str) -> None:
        """Forget what was decided for a pod whose Binding was not done, or whose record says what was."""
        self._due.pop(uid, None)

    # --- states -------------------------------------------------------------------------------------------------------

    def divided(self, record: PodRecord, state: PodState) -> PodState:
        """Return a pod's state with what its own node is to serve."""
        remote = record.remote
        if remote and remote.identity:
            return self._as_worker(remote, state)
        if not state.node:
            return self.unbound(state)
        if remote is None and state.namespace not in self._namespaces:
            return on_own_node(self._snapshot, state, (), anywhere=False)
        parts = self._parts(state.uid, remote)
        if state.requested:
            self._asked[state.uid] = state.requested
        else:
            self._asked.pop(state.uid, None)
        asked = state.requested
        anywhere = asked is not None and self._allowed(state) and may_be_split(asked.wish)
        return on_own_node(self._snapshot, state, parts, anywhere=anywhere)

    def workers_of(self, uid: str) -> tuple[tuple[str, ...], tuple[PodState, ...], tuple[str, ...]]:
        """Return the pods of a notebook's workers, the promises of those without one, and promises that are void."""
        record = self._records.get(uid)
        if uid not in self._promised and uid not in self._due and (record is None or record.remote is None):
            return (), (), ()
        promised = self._promised.get(uid, set())
        parts = self._parts(uid, record.remote if record else None)
        if not parts and not promised:
            return (), (), ()
        there = self._workers.get(uid, {})
        made: list[PodState] = []
        notebook, asked = self._snapshot.pod(uid), self._asked.get(uid)
        if notebook and asked and not notebook.gone:
            without = (part for part in parts if part.milli and not self._pod_of(uid, part.id))
            made = [promise(notebook, asked, part, self._asks) for part in without]
        now = {state.uid for state in made}
        for name in now - promised:
            self._named[name] = self._elapsed()
        for name in promised - now:
            self._named.pop(name, None)
        self._promised[uid] = now
        if not now:
            del self._promised[uid]
        return tuple(there.values()), tuple(made), tuple(promised - now)

    def terms_changed(self, owners: Collection[Owner]) -> tuple[str, ...]:
        """Note that limits of these owners may have changed: other nodes may be permitted more now.

        Return the pods whose state follows from whether they may have GPUs of other nodes at all, if that changed.
        """
        known = ((uid, self._snapshot.pod(uid)) for uid in self._waiting)
        found = (uid for uid, pod in known if pod and pod.owner in owners and self._limits_of(pod.owner))
        self._stirred.update(dict.fromkeys(found))
        some = owners if self._namespaces else ()
        changed = [owner for owner in some if self._may_leave(owner) is (owner in self._kept_home)]
        self._kept_home.symmetric_difference_update(changed)
        uids = [pod.uid for owner in changed for pod in self._snapshot.owned(owner) if self._is_served(pod)]
        self._stirred.update(dict.fromkeys(uids))
        return tuple(uids)

    def on(self, node: str) -> tuple[str, ...]:
        """Return the notebooks on a node: what it can ever serve may have changed."""
        if not self._namespaces:
            return ()
        return tuple(pod.uid for pod in self._snapshot.pods(node) if self._allowed(pod))

    def _as_worker(self, remote: RemoteRecord, state: PodState) -> PodState:
        assert remote.identity
        uid = remote.identity.notebook
        record = self._records.get(uid)
        of = record.remote if record else None
        part = next((part for part in self._parts(uid, of) if part.id == remote.identity.id), None)
        same = bool(of and of.images & remote.images)
        known = record.state if record else None
        return as_worker(state, known, self._asked.get(uid), part, same_image=same)

    def _is_served(self, pod: PodState) -> bool:
        """Tell whether a pod is in a namespace of workers, and is none."""
        return pod.namespace in self._namespaces and not pod.notebook

    def _allowed(self, pod: PodState) -> bool:
        """Tell whether other nodes may give a pod GPUs."""
        if not self._is_served(pod) or self._may_leave(pod.owner):
            return self._is_served(pod)
        self._kept_home.add(pod.owner)
        return False

    def _parts(self, uid: str, remote: RemoteRecord | None) -> tuple[WorkerPart, ...]:
        service = self._due.get(uid) or (remote.service if remote else None)
        return service.workers if isinstance(service, Service) else ()

    # --- decisions ----------------------------------------------------------------------------------------------------

    def to_review(self, nodes: Iterable[str]) -> tuple[str, ...]:
        """Return the notebooks to look at as these nodes changed, or as they changed themselves; next in line first."""
        found, self._stirred = dict(self._stirred), {}
        changed = tuple(nodes)
        if changed:
            found |= dict.fromkeys(self._waiting)
        if self._namespaces or self._workers or self._promised:
            for node in changed:
                for pod in (*self._snapshot.pods(node), *self._snapshot.nominated(node)):
                    if pod.notebook or pod.namespace in self._namespaces:
                        found[pod.notebook or pod.uid] = None
        if self._namespaces and self._reach.update():
            found |= dict.fromkeys(uid for uid, one in self._records.items() if one.state.namespace in self._namespaces)
        now = self._now()
        found |= dict.fromkeys(uid for uid, at in self._ends.items() if at <= now)
        pods = (self._snapshot.pod(uid) for uid in found)
        known = (pod for pod in pods if pod and pod.node and not pod.gone and not pod.notebook)
        return tuple(pod.uid for pod in sorted(known, key=lambda pod: pod.rank))

    def divide(self, uid: str) -> tuple[bool, bool]:
        """Decide the next step for a notebook.

        Return whether its ``service`` changed, and so its state, and whether another step may follow then.
        """
        record, notebook = self._records.get(uid), self._snapshot.pod(uid)
        remote = record.remote or RemoteRecord() if record else None
        if record is None or notebook is None or notebook.gone or remote is None or remote.identity:
            return False, False
        before = self._due.get(uid) or remote.service or Service(0)
        assert isinstance(before, Service)
        asked = self._asked.get(uid)
        reach = self._elsewhere(notebook, asked)
        if asked is None and not before.workers and reach == (before.elsewhere, before.kinds):
            return False, False
        self._waiting.discard(uid)
        after = self._settled(record, before, asked)
        workers = [self._worker(uid, part, remote) for part in after.workers]
        known = [worker for worker in workers if worker]
        goes_on = True
        if asked and not notebook.fault and len(known) == len(workers):
            wish = asked.wish if self._allowed(notebook) else replace(asked.wish, placement="local")
            step = self._splitter.next_parts(notebook, wish, known, self._workers.get(uid, ()))
            after = replace(after, workers=step.parts)
            goes_on = not step.last or bool(remote.failed)  # the new worker may have the name of one that failed
            if self._splitter.is_early(notebook):
                self._stirred[uid] = None
            parts = [worker.part for worker in known]
            self._moved += ((uid, text) for text in moved(remote.failed, parts, after.workers))
            if after.workers == before.workers and may_be_split(wish) and self._splitter.waits(notebook, known):
                self._waiting.add(uid)
        self._accept(record, notebook)
        if (end := ends_at(after, self._grace)) is not None:
            self._ends[uid] = end
        else:
            self._ends.pop(uid, None)
        after = replace(after, elsewhere=reach[0], kinds=reach[1])
        if after == before or not (after.workers or before.workers or reach != (before.elsewhere, before.kinds)):
            return False, False
        self._due[uid] = after
        return True, goes_on

    def _elsewhere(self, notebook: PodState, asked: Requested | None) -> tuple[int, tuple[GpuKind, ...]]:
        """Return the milli of other nodes that a notebook could ever have, and the kinds of these GPUs.

        Nothing for one that was never decided about.
        """
        if not self._allowed(notebook) or not (asked or notebook.allocated) or (asked and not may_be_split(asked.wish)):
            return 0, ()
        return self._reach.elsewhere(notebook), self._reach.kinds(notebook)

    def _settled(self, record: PodRecord, before: Service, asked: Requested | None) -> Service:
        remote = record.remote or RemoteRecord()
        pods: dict[str, WorkerPod] = {}
        for name, uid in self._workers.get(record.state.uid, {}).items():
            worker, state = self._records.get(uid), self._snapshot.pod(uid)
            if worker and worker.remote and state:
                has = worker.state.attached or Attached(0)
                facts = (worker.remote.address, worker.remote.peer, has.shares, bool(state.holds), has.draining)
                gpus = self._snapshot.gpus(state.node) or ()
                pods[name] = WorkerPod(state.name, uid, *facts, unhealthy=broken(state, gpus))
        generation = asked.generation if asked else before.generation
        return settled(before, generation, pods, remote.told, now=self._now(), grace=self._grace)

    def _worker(self, notebook: str, part: WorkerPart, remote: RemoteRecord) -> Worker | None:
        """Return a worker with its pod or its promise; ``None``: neither is in the snapshot yet."""
        uid = self._pod_of(notebook, part.id)
        state = self._snapshot.pod(uid) or self._snapshot.pod(promise_uid(notebook, part.id))
        if state is None and not part.milli:  # it is kept for a while, without a pod
            record, asked = self._records[notebook], self._asked.get(notebook)
            state = promise(record.state, asked, part, self._asks) if asked else None
        if state is None:
            return None
        return Worker(part, state, there=bool(uid), failed=part.id in remote.failed)

    def _pod_of(self, notebook: str, worker: str) -> str:
        """Return the uid of a worker's pod; empty where there is none, or it ends."""
        uid = self._workers.get(notebook, {}).get(worker, "")
        record = self._records.get(uid)
        return uid if record and not record.state.gone else ""

    def _accept(self, record: PodRecord, notebook: PodState) -> None:
        """Decide which notebook its workers accept."""
        peer = notebook.attached.peer if notebook.attached else None
        for name, uid in self._workers.get(notebook.uid, {}).items():
            worker = self._records.get(uid)
            if worker and worker.remote and worker.state.node and not worker.state.gone:
                due = self._due.get(uid) or worker.remote.accepts
                after = accepted(due if isinstance(due, WorkerService) else None, record.state, name, peer)
                if after != due:
                    self._due[uid] = after

    # --- writes -------------------------------------------------------------------------------------------------------

    def due(self, uid: str) -> Service | WorkerService | None:
        """Return the ``service`` of a pod that is decided and not confirmed yet."""
        return self._due.get(uid)

    def all_due(self) -> tuple[str, ...]:
        """Return the pods whose ``service`` is to be written."""
        return tuple(self._due)

    def forget_due(self) -> tuple[str, ...]:
        """Forget what was decided and not confirmed, by a leader before; return the pods concerned."""
        found = tuple(self._due)
        self._due.clear()
        self._stirred.update(dict.fromkeys(self._records) if self._namespaces or self._workers else {})
        return found

    # --- time ---------------------------------------------------------------------------------------------------------

    def seconds_until_due(self) -> float | None:
        """Return the seconds until a worker is kept no longer, or should have been told of; ``None``: there is none."""
        times = [at - self._now() for at in self._ends.values()]
        times += [at + SILENCE_SECONDS - self._elapsed() for at in self._named.values()]
        return max(0.0, min(times)) if times else None

    def take_moved(self) -> tuple[tuple[str, str], ...]:
        """Return the notebooks with a part that left a worker which failed, and a sentence, since the last call."""
        found, self._moved = tuple(self._moved), []
        return found

    def figures(self) -> RemoteFigures:
        """Count the parts on other nodes, and the notebooks that wait for more."""
        parts = allocated = wanted = 0
        for uid, record in self._records.items():
            for part in self._parts(uid, record.remote) if record.remote and record.remote.service else ():
                worker = self._snapshot.pod(self._pod_of(uid, part.id))
                parts += part.milli > 0
                wanted += part.milli
                allocated += min(part.milli, worker.has) if worker else 0
        return RemoteFigures(parts, allocated, wanted - allocated, len(self._waiting))

    def unanswered(self) -> Iterator[str]:
        """Yield the notebooks with a worker of which the worker controller has told nothing, once for each worker."""
        for uid, names in self._promised.items():
            record = self._records.get(uid)
            told = record.remote.told if record and record.remote else frozenset[str]()
            for name in names:
                if self._named.get(name, self._elapsed()) + SILENCE_SECONDS <= self._elapsed():
                    del self._named[name]
                    if name.rpartition(":")[2] not in told:
                        yield uid
