"""Notebooks with workers in the cluster cache, without processes.

What API server, worker controller, kube-scheduler and node plugins do is done to the objects here, one step at a time.
"""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    INVENTORY,
    REQUESTED,
    SERVICE,
    WORKER,
    Allocated,
    Attached,
    decode_allocated,
    encode,
)
from jupyter_gpu.model.gpu import Gpu, GpuShare, total
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.limits.owner import HUB, USERNAME
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.service import (
    WorkerIdentity,
    WorkerPart,
    decode_service,
)
from jupyter_gpu_scheduler.clocks import Clocks
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.notebooks import STEPS
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.pairs.relation import Network
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import read_pod
from jupyter_gpu_scheduler.settings import NotebookWorkerSettings, SchedulerSettings
from tests.scheduler_process.test_cluster_cache import node, pod

GIB = 1024**3
NODES = {"n0": 1, "n1": 2, "n2": 1}
RACK = "example.com/rack"


class Cluster:
    """Three nodes, the pods' JSON by uid, and the cache of a leader."""

    def __init__(self, relation: Network = Network(), **workers: Any) -> None:  # noqa: B008 it can't be changed
        self.pods: dict[str, dict[str, Any]] = {}
        self.time = 1000.0
        self.limit: dict[str, Any] | None = None
        self.kinds: dict[str, tuple[str, int]] = {}
        self.gate = False
        self._version = 0
        self.racks: dict[str, str] = {}
        """Racks by node, which a label of the test's own names."""
        self._settings = SchedulerSettings(
            relation=relation, workers=NotebookWorkerSettings(**{"namespaces": ("ns",), **workers})
        )
        self.writes = 0
        self.given_back = 0
        """Milli that pods were given and lost again."""
        self.restart()

    def restart(self) -> None:
        """Another process leads, which knows the objects alone."""
        clocks = Clocks(lambda: self.time, lambda: self.time)
        self.cache = ClusterCache(lambda: None, self._settings, clocks=clocks)
        for name, gpus in NODES.items():
            self.cache.node_changed(ObjectChange("added", self.node(name, gpus)))
        if self.limit:
            self.cache.limit_changed(read_limit(self.limit))
        for body in self.pods.values():
            self.cache.pod_changed(ObjectChange("added", body))
        self.cache.mark_all_changed()

    def node(self, name: str, gpus: int) -> dict[str, Any]:
        """Return a node with slots and so many GPUs, of another kind where `kinds` names one: model and GiB.

        With `gate`, their shares can have memory of their own.
        """
        body = node(name, gpus)
        body["status"]["allocatable"]["jupyter-gpu.io/slot"] = "9"
        model, memory = self.kinds.get(name, ("m", 1))
        found = (Gpu(f"{name}-{index}", index, model, memory * GIB, gate=self.gate) for index in range(gpus))
        body["metadata"]["annotations"][INVENTORY] = encode(tuple(found))
        if name in self.racks:
            body["metadata"]["labels"] = {RACK: self.racks[name]}
        return body

    def put(self, body: dict[str, Any]) -> None:
        """Put an object as the API server has it, and tell the cache."""
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.pods[body["metadata"]["uid"]] = body
        self.cache.pod_changed(ObjectChange("changed", json.loads(json.dumps(body))))

    def annotate(self, uid: str, **words: str | None) -> None:
        """Change annotations."""
        body = json.loads(json.dumps(self.pods[uid]))
        kept = {**body["metadata"]["annotations"], **words}
        body["metadata"]["annotations"] = {key: text for key, text in kept.items() if text is not None}
        self.put(body)

    def notebook(self, uid: str, wants: object, on: str = "n0") -> None:
        """A pod of ann wishes."""
        if uid not in self.pods:
            body = pod(uid, 0, on)
            body["spec"]["containers"][0]["image"] = "lab:1"
            body["metadata"]["annotations"] = {USERNAME: "ann", HUB: "hub"}
            self.put(body)
        self.annotate(uid, **{REQUESTED: wants if isinstance(wants, str) else str(wants)})

    def limited(self, most: int | None = None, **fields: Any) -> None:
        """The pods of ann together may have so many GPUs, or what other fields of the limit say."""
        spec = {"subject": {"kind": "User", "name": "ann"}, **fields, **({} if most is None else {"max": most})}
        self.limit = {"metadata": {"name": "ann"}, "spec": spec}
        self.cache.limit_changed(read_limit(self.limit))

    def remove(self, uid: str) -> None:
        """A pod is gone."""
        self.cache.pod_changed(ObjectChange("removed", self.pods.pop(uid)))

    # --- the processes ------------------------------------------------------------------------------------------------

    def reconcile(self) -> int:
        """Decide and write until nothing changes, as the controller does; return the number of writes."""
        before = self.writes
        for _ in range(20):
            count = self.writes
            self.cache.catch_up()
            for uid in self.cache.notebooks.to_review(self.cache.take_changed_nodes()):
                for _ in range(STEPS):
                    if not self.cache.divide(uid):
                        break
            for name in NODES:
                for decision in decide(self.cache.snapshot, name):
                    if self.cache.record(decision.uid):
                        self._write(decision.uid, decision.allocated)
            for uid in self.cache.notebooks.all_due():
                record = self.cache.record(uid)
                if record and record.state.allocated:
                    self._write(uid, record.state.allocated)
            if count == self.writes:
                return self.writes - before
        raise AssertionError("it does not come to rest")

    def _write(self, uid: str, allocated: Allocated) -> None:
        self.writes += 1
        self.given_back += max(0, self.has(uid) - total(allocated.shares))
        pending_write = self.cache.assume(uid, allocated)
        body = json.loads(json.dumps(self.pods[uid]))
        words = {ALLOCATED: encode(allocated)}
        if pending_write.service:
            words[SERVICE] = encode(pending_write.service)
        body["metadata"]["annotations"].update(words)
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.pods[uid] = body
        self.cache.finish_write(uid, pending_write, read_pod(body, self.cache.record(uid)))

    def follow(self) -> None:
        """Controller, kube-scheduler and node plugins do what was decided."""
        named = {f"{uid}-{part.id}": (uid, part) for uid in tuple(self.pods) for part in self.parts(uid)}
        for name, (uid, part) in named.items():
            if name not in self.pods:
                self.put(worker(name, uid, part.id))
            self._bind(name, part)
        for uid in [uid for uid, body in self.pods.items() if WORKER in body["metadata"]["annotations"]]:
            if uid not in named:
                self.remove(uid)
        for uid in tuple(self.pods):
            text = self.pods[uid]["metadata"]["annotations"].get(ALLOCATED)
            if text and self.pods[uid]["spec"]["nodeName"]:
                decided = decode_allocated(text)
                done = Attached(decided.observed_generation, decided.shares, revision=decided.revision)
                if self.pods[uid]["metadata"]["annotations"].get(ATTACHED) != encode(done):
                    self.annotate(uid, **{ATTACHED: encode(done)})

    def _bind(self, name: str, part: WorkerPart) -> None:
        state = self.state(name)
        if state.pending:
            found = allocate(self.cache.snapshot, state, part.node)
            if isinstance(found, Allocated):
                body = json.loads(json.dumps(self.pods[name]))
                body["spec"]["nodeName"] = part.node
                body["metadata"]["annotations"][ALLOCATED] = encode(found)
                self.put(body)

    def settle(self) -> None:
        """All do what they do, until all is done."""
        for _ in range(8):
            self.reconcile()
            self.follow()
        assert self.reconcile() == 0

    # --- what is so ---------------------------------------------------------------------------------------------------

    def state(self, uid: str) -> PodState:
        """Return a pod that is known."""
        found = self.cache.snapshot.pod(uid)
        assert found
        return found

    def parts(self, uid: str) -> tuple[WorkerPart, ...]:
        """Return the parts of a pod's `service`."""
        words = self.pods[uid]["metadata"]["annotations"]
        return decode_service(words[SERVICE]).workers if SERVICE in words and WORKER not in words else ()

    def shares(self, uid: str) -> tuple[GpuShare, ...]:
        """Return the shares that are allocated to a pod."""
        text = self.pods[uid]["metadata"]["annotations"].get(ALLOCATED) if uid in self.pods else None
        return decode_allocated(text).shares if text else ()

    def allocated(self, uid: str) -> Allocated:
        """Return what is decided for a pod."""
        return decode_allocated(self.pods[uid]["metadata"]["annotations"][ALLOCATED])

    def has(self, uid: str) -> int:
        """Return the milli that are allocated to a pod."""
        return total(self.shares(uid))

    def of_kind(self) -> Counter[str]:
        """Return the milli that all pods have, by model, and the GiB, by ``GiB``."""
        found: Counter[str] = Counter()
        for share in (share for uid in self.pods for share in self.shares(uid)):
            model, memory = self.kinds[share.uuid.partition("-")[0]]
            found.update({model: share.milli, "GiB": share.milli * memory // 1000})
        return found

    def elsewhere(self, uid: str) -> int:
        """Return the GPUs of other nodes that a pod could ever have, as its `service` says."""
        text = self.pods[uid]["metadata"]["annotations"].get(SERVICE)
        return decode_service(text).elsewhere // 1000 if text else 0

    def kinds_elsewhere(self, uid: str) -> tuple[GpuKind, ...]:
        """Return the kinds of these GPUs, as its `service` says."""
        return decode_service(self.pods[uid]["metadata"]["annotations"][SERVICE]).kinds

    def whole(self, uid: str) -> int:
        """Return the milli of a notebook and its workers."""
        return self.has(uid) + sum(self.has(f"{uid}-{part.id}") for part in self.parts(uid))


def worker(name: str, notebook: str, number: str, image: str = "lab:1") -> dict[str, Any]:
    """Return the pod that the worker controller creates."""
    body = pod(name, 0)
    body["spec"]["containers"][0]["image"] = image
    body["metadata"]["annotations"] = {WORKER: encode(WorkerIdentity(notebook, number))}
    return body


def wish(milli: int, **fields: Any) -> str:
    """Return the text of a wish."""
    return json.dumps({"generation": 9, "milli": milli, **fields})
