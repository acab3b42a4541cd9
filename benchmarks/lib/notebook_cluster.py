"""A cluster of equal nodes with notebooks and their workers, as one scheduler process knows it: no API server.

The cache and the rules of the scheduler decide. The cluster does at once what a decision asks for: GPUs are attached,
and a worker pod is there as soon as it is named; how long its start takes, the cells bear (`worker_age`). Time stands
still but for `at`.
"""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Any

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    INVENTORY,
    REQUESTED,
    SERVICE,
    WORKER,
    WORKER_STATUS,
    Allocated,
    Attached,
    Requested,
    Wish,
    encode,
)
from jupyter_gpu.model.gpu import Gpu, total
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.service import Service, WorkerIdentity, WorkerPart, WorkerState, WorkerStatus, WorkerStatuses
from jupyter_gpu_scheduler.clocks import Clocks
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.notebooks import STEPS
from jupyter_gpu_scheduler.pending_write import PendingWrite
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.queue.repair import repair
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import best
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import read_pod
from jupyter_gpu_scheduler.rules.state.snapshot import CPU
from jupyter_gpu_scheduler.settings import LineSettings, NotebookWorkerSettings, SchedulerSettings

NODE_GPUS = 8
_NAMESPACE = "hub"
_MEMORY = 80 * 1024**3  # bytes
_CREATED = "2026-05-04T12:00:00Z"
_SLOTS = {"jupyter-gpu.io/slot": "1"}
_LINE = LineSettings(wish_burst=10_000, wish_seconds=0)  # every wish is answered at once
_MOST_WORKERS = 8


class NotebookCluster:
    """The pods of notebooks, each on a node of its own; ``remote``: other nodes may serve their wishes, too."""

    def __init__(self, gpus: int, *, remote: bool, grace: float = 600.0) -> None:
        self.started = 0
        """Worker pods that were made."""
        self.decisions: list[float] = []
        """Seconds of CPU that the scheduler's cache and rules took for each step of a wish; the writes do not count."""
        self._seconds = 0.0
        self._policy = Policy()
        self._placement = "any" if remote else "local"
        workers = NotebookWorkerSettings((_NAMESPACE,) if remote else (), per_pod=_MOST_WORKERS, grace_seconds=grace)
        clocks = Clocks(lambda: self._seconds, lambda: self._seconds)
        self._cache = ClusterCache(lambda: None, SchedulerSettings(line=_LINE, workers=workers), clocks=clocks)
        self._nodes = [f"node{number}" for number in range(gpus // NODE_GPUS)]
        self._pods: dict[str, dict[str, Any]] = {}
        self._sets: dict[str, int] = {}  # milli that the cell of each notebook needs, on one node
        self._made: dict[str, float] = {}  # when each worker pod was made, in seconds
        self._version = 0
        for name in self._nodes:
            metadata = {"name": name, "uid": name, "annotations": {INVENTORY: encode(_inventory(name))}}
            status = {"allocatable": {"jupyter-gpu.io/slot": "1000", "cpu": "1000", "memory": "1000Gi", "pods": "1000"}}
            self._cache.node_changed(ObjectChange("added", {"metadata": metadata, "status": status}))
        self._cache.begin()
        self._settle()

    def at(self, minutes: float) -> None:
        """Have it be so many minutes after the beginning."""
        self._seconds = 60.0 * minutes
        self._settle()

    def start(self, name: str) -> None:
        """Bring a notebook without a wish onto the node that the policy chooses."""
        node = best(self._cache.snapshot, PodState(name, asks={CPU: 1000}), self._nodes, self._policy)
        assert node, "no node has room for a notebook without GPUs"
        self._put(name, node)
        self._settle()

    def end(self, name: str) -> None:
        """Take a notebook away, and its workers."""
        for uid in [name, *self._workers(name)]:
            self._cache.pod_changed(ObjectChange("removed", self._pods.pop(uid)))
        self._settle()

    def ask(self, name: str, gpus: int) -> None:
        """Have a notebook wish a set of so many GPUs, as one process uses them, and decide what follows."""
        record = self._cache.record(name)
        before = record.state.requested if record else None
        milli = self._sets[name] = gpus * MILLI_PER_GPU
        wish = Wish(milli, placement=self._placement, base=0 if milli else None, set=milli or None)
        self._write(name, {REQUESTED: encode(Requested(before.generation + 1 if before else 1, wish))})
        self._settle()

    def has(self, name: str) -> tuple[int, int]:
        """Return how many GPUs a notebook has on its own node, and the most that it has on one other."""
        return self._gpus(name), max(map(self._gpus, self._workers(name)), default=0)

    def worker_age(self, name: str) -> float:
        """Return the seconds since that worker pod of a notebook was made that has the most GPUs."""
        return self._seconds - self._made[max(self._workers(name), key=self._gpus)]

    def _workers(self, name: str) -> list[str]:
        return [uid for uid in self._pods if uid.startswith(f"{name}-")]

    def _gpus(self, uid: str) -> int:
        record = self._cache.record(uid)
        return total(record.state.allocated.shares) // MILLI_PER_GPU if record and record.state.allocated else 0

    # --- the scheduler, as its controller works -----------------------------------------------------------------------

    def _settle(self) -> None:
        cache = self._cache
        while True:
            begun = process_time()
            cache.catch_up()
            cache.take_changed_pods()
            writes = list(self._reconcile(cache.take_changed_nodes()))
            if not writes:
                return
            self.decisions.append(process_time() - begun)
            for uid, pending in writes:
                changes = {ALLOCATED: encode(pending.allocated)}
                if pending.service is not None:
                    changes[SERVICE] = encode(pending.service)
                cache.finish_write(uid, pending, read_pod(self._written(uid, changes), cache.record(uid)))
            for uid, pending in writes:
                self._attach(uid, pending.allocated)
                if isinstance(pending.service, Service):
                    self._make_workers(uid, pending.service)

    def _reconcile(self, nodes: tuple[str, ...]) -> Iterator[tuple[str, PendingWrite]]:
        cache, snapshot = self._cache, self._cache.snapshot
        for node in nodes:
            for decision in repair(snapshot, node):
                yield decision.uid, cache.assume(decision.uid, decision.allocated)
        for uid in cache.notebooks.to_review(nodes):
            for _ in range(STEPS):
                if not cache.divide(uid):
                    break
        for node in dict.fromkeys((*nodes, *cache.take_changed_nodes())):
            cache.reclaim(node)
            cache.begin_deciding(node)
            for decision in decide(snapshot, node):
                if cache.record(decision.uid) and not cache.in_flight(decision.uid):
                    yield decision.uid, cache.assume(decision.uid, decision.allocated, decided=node)
        for uid in cache.notebooks.all_due():
            record = cache.record(uid)
            if record and record.state.allocated and not cache.in_flight(uid):
                yield uid, cache.assume(uid, record.state.allocated)

    # --- the cluster --------------------------------------------------------------------------------------------------

    def _attach(self, uid: str, allocated: Allocated) -> None:
        shares = allocated.shares
        runs = total(shares) >= self._sets.get(uid.partition("-")[0], 0)  # a cell opens its GPUs when it has all
        opened = tuple(share.uuid for share in shares) if runs else ()
        text = encode(Attached(allocated.observed_generation, shares, revision=allocated.revision, open=opened))
        if self._pods[uid]["metadata"]["annotations"].get(ATTACHED) != text:
            self._write(uid, {ATTACHED: text})

    def _make_workers(self, uid: str, service: Service) -> None:
        named = {_worker(uid, part): part for part in service.workers}
        for name in [name for name in self._pods if name.startswith(f"{uid}-") and name not in named]:
            self._cache.pod_changed(ObjectChange("removed", self._pods.pop(name)))
        new = {name: part for name, part in named.items() if part.milli and name not in self._pods}
        for name, part in new.items():
            self.started += 1
            self._made[name] = self._seconds
            self._put(name, part.node, {WORKER: encode(WorkerIdentity(uid, part.id)), ALLOCATED: encode(Allocated(0))})
        if new:
            running = {part.id: WorkerStatus(WorkerState.RUNNING) for part in service.workers}
            self._write(uid, {WORKER_STATUS: encode(WorkerStatuses(running))})

    def _put(self, uid: str, node: str, annotations: dict[str, str] | None = None) -> None:
        metadata = {"uid": uid, "name": uid, "namespace": _NAMESPACE, "creationTimestamp": _CREATED}
        container = {"name": "main", "image": "image", "resources": {"limits": _SLOTS}}
        spec = {"nodeName": node, "containers": [container]}
        self._pods[uid] = {"metadata": {**metadata, "annotations": {}}, "spec": spec, "status": {"podIP": "10.0.0.1"}}
        self._write(uid, annotations or {})

    def _write(self, uid: str, annotations: dict[str, str]) -> None:
        self._cache.pod_changed(ObjectChange("changed", self._written(uid, annotations)))

    def _written(self, uid: str, annotations: dict[str, str]) -> dict[str, Any]:
        """Return the pod with these annotations, in its next version."""
        body, self._version = self._pods[uid], self._version + 1
        metadata = {**body["metadata"], "resourceVersion": str(self._version)}
        metadata["annotations"] = {**metadata["annotations"], **annotations}
        self._pods[uid] = {**body, "metadata": metadata}
        return self._pods[uid]


def _worker(notebook: str, part: WorkerPart) -> str:
    return f"{notebook}-{part.id}"


def _inventory(node: str) -> tuple[Gpu, ...]:
    return tuple(Gpu(f"{node}-{index}", index, "H100", _MEMORY) for index in range(NODE_GPUS))
