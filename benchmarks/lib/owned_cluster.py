"""A cluster whose pods belong to users, as one scheduler process knows it, with limits or without: no API server.

Each change goes the way of the process: the cache reads it, what changed is reviewed, reclaimed and decided, each
decision is written, and the node attaches it at once. Only the work of the scheduler is timed.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    INVENTORY,
    REQUESTED,
    Allocated,
    Attached,
    Requested,
    Wish,
    encode,
)
from jupyter_gpu.model.limits.owner import HUB, USERNAME
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu_scheduler.cluster_cache import ClusterCache
from jupyter_gpu_scheduler.pending_write import PendingWrite
from jupyter_gpu_scheduler.rules.new_pods.review import review_in_steps
from jupyter_gpu_scheduler.rules.queue.aging import stamped
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide
from jupyter_gpu_scheduler.rules.queue.repair import repair
from jupyter_gpu_scheduler.rules.queue.slider_end import moved_end
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.records import read_pod
from jupyter_gpu_scheduler.settings import LineSettings, SchedulerSettings

from .gpus import inventory

_SLOTS = {"jupyter-gpu.io/slot": "1"}
_LINE = LineSettings(wish_burst=10_000, wish_seconds=0)  # every wish is answered at once
_CREATED = "2026-05-04T12:00:00Z"

_Write = tuple[str, Allocated, PendingWrite]


class Spent(NamedTuple):
    """CPU milliseconds of the scheduler for one change."""

    own: float
    """Until the first decision, about the pod whose wish changed if one did; all, if none followed."""
    total: float
    """Until nothing changes any more, in other pods neither."""
    decisions: int
    """About that pod and others, ends of sliders among them."""


class OwnedCluster:
    """The nodes, pods and limits, and the cache of the scheduler that decides about them."""

    def __init__(self, nodes: int) -> None:
        self._began = 0.0
        """Thread time when the scheduler's present step began."""
        self._spent = 0.0
        """CPU seconds since `take_spent`."""
        self._own: float | None = None
        self._decisions = 0
        self._about = ""
        """Uid of the pod whose wish changes."""
        self._cache = ClusterCache(lambda: None, SchedulerSettings(line=_LINE), complete=False)
        self._policy = Policy()
        self._pods: dict[str, dict[str, Any]] = {}
        self._version = 0
        for number in range(nodes):
            metadata: dict[str, Any] = {"name": _node(number), "uid": _node(number)}
            metadata["annotations"] = {INVENTORY: encode(inventory(number))}
            self._cache.node_changed(ObjectChange("added", {"metadata": metadata, "status": {"allocatable": _SLOTS}}))

    def begin(self) -> None:
        """Begin to decide: all that there is at first is known."""
        self._cache.counters.begin()
        self._cache.begin()
        self.settle()

    def take_spent(self) -> Spent:
        """Return what was spent since the last call."""
        own = self._spent if self._own is None else self._own
        found = Spent(own * 1000, self._spent * 1000, self._decisions)
        self._spent, self._own, self._decisions, self._about = 0.0, None, 0, ""
        return found

    def waiting(self) -> int:
        """Return how many pods stand in line."""
        return sum(pod.ticket is not None for uid in self._pods if (pod := self._cache.snapshot.pod(uid)))

    # --- changes ------------------------------------------------------------------------------------------------------

    def put_limit(self, user: int, most: int, **spec: Any) -> None:
        """Write the limit of a user: ``most`` GPUs."""
        subject = {"kind": "User", "name": _user(user)}
        body = {"metadata": {"name": _user(user)}, "spec": {"subject": subject, "max": most, **spec}}
        with self._timed():
            self._cache.limit_changed(read_limit(body))

    def put_pod(self, uid: str, user: int, wish: Wish, node: int) -> None:
        """Create a pod on a node."""
        names = {USERNAME: _user(user), HUB: "hub", REQUESTED: encode(Requested(1, wish))}
        metadata = {"uid": uid, "name": uid, "namespace": "hub", "creationTimestamp": _CREATED, "annotations": names}
        spec = {"nodeName": _node(node), "containers": [{"name": "c", "resources": {"limits": _SLOTS}}]}
        self._pods[uid] = {"metadata": metadata, "spec": spec}
        self._seen(self._written(uid))

    def ask(self, uid: str, wish: Wish) -> None:
        """Have a pod's user wish something else."""
        state = self._cache.snapshot.pod(uid)
        assert state
        assert state.requested
        self._about = uid
        self._seen(self._written(uid, **{REQUESTED: encode(Requested(state.requested.generation + 1, wish))}))

    def touch(self, uid: str) -> None:
        """Change something of a pod that does not matter here."""
        self._seen(self._written(uid))
        with self._timed():
            self._cache.mark_changed(self._pods[uid]["spec"]["nodeName"])

    def remove(self, uid: str) -> None:
        """Delete a pod."""
        body = self._pods.pop(uid)
        with self._timed():
            self._cache.pod_changed(ObjectChange("removed", body))

    # --- the scheduler ------------------------------------------------------------------------------------------------

    def settle(self) -> None:
        """Decide, write and attach until nothing changes any more."""
        cache = self._cache
        while True:
            with self._timed():
                cache.catch_up()
                cache.take_changed_pods()
                nodes = cache.take_changed_nodes()
            if not nodes:
                return
            with self._timed():
                writes = tuple(self._reconcile(nodes))
            for uid, allocated, pending in writes:
                found = read_pod(self._written(uid, **{ALLOCATED: encode(allocated)}), cache.record(uid))
                with self._timed():
                    cache.finish_write(uid, pending, found)
            for uid, allocated, _ in writes:
                text = encode(Attached(allocated.observed_generation, allocated.shares, revision=allocated.revision))
                if self._pods[uid]["metadata"]["annotations"].get(ATTACHED) != text:  # a node writes what is new to it
                    self._seen(self._written(uid, **{ATTACHED: text}))

    def _reconcile(self, nodes: tuple[str, ...]) -> Iterator[_Write]:
        """Decide as the controller does; yield the writes that it begins."""
        cache = self._cache
        for node in nodes:
            yield from self._apply(repair(cache.snapshot, node))
        for found in review_in_steps(cache.snapshot, self._policy, nodes):
            yield from self._apply((found,) if found else ())
        for node in dict.fromkeys((*nodes, *cache.take_changed_nodes())):
            cache.reclaim(node)
            cache.begin_deciding(node)
            yield from self._apply(decide(cache.snapshot, node), node)
        for uid in cache.take_moved_ends():
            yield from self._apply(moved_end(cache.snapshot, uid))

    def _apply(self, decisions: tuple[Decision, ...], node: str = "") -> Iterator[_Write]:
        for decision in decisions:
            if not self._cache.in_flight(decision.uid):
                allocated = stamped(decision.allocated, time.time())
                self._decisions += 1
                if self._own is None and self._about in ("", decision.uid):
                    self._own = self._spent + time.thread_time() - self._began
                yield decision.uid, allocated, self._cache.assume(decision.uid, allocated, decided=node)

    def _written(self, uid: str, **annotations: str) -> dict[str, Any]:
        """Return the pod with these annotations, in its next version."""
        body, self._version = self._pods[uid], self._version + 1
        metadata = {**body["metadata"], "resourceVersion": str(self._version)}
        metadata["annotations"] = {**metadata["annotations"], **annotations}
        self._pods[uid] = {**body, "metadata": metadata}
        return self._pods[uid]

    def _seen(self, body: dict[str, Any]) -> None:
        with self._timed():
            self._cache.pod_changed(ObjectChange("changed", body))

    @contextmanager
    def _timed(self) -> Iterator[None]:
        self._began = time.thread_time()
        yield
        self._spent += time.thread_time() - self._began


def in_turn(
    clusters: tuple[OwnedCluster, ...], turns: int, change: Callable[[OwnedCluster, random.Random], object]
) -> tuple[list[Spent], ...]:
    """Return what each turn costs, for each cluster: the same change, and all that follows from it."""
    found: tuple[list[Spent], ...] = tuple([] for _ in clusters)
    for turn in range(turns):
        for index in sorted(range(len(clusters)), reverse=turn % 2 == 1):  # none of them is always the second
            clusters[index].take_spent()
            change(clusters[index], random.Random(turn))
            clusters[index].settle()
            found[index].append(clusters[index].take_spent())
    return found


def _node(number: int) -> str:
    return f"node-{number}"


def _user(number: int) -> str:
    return f"user-{number:04}"
