"""Keeps the pods' ``allocated`` up to date: examines what changed, decides, and starts the writes.

The controller sleeps until a watch, an answer of the API server or kube-scheduler brings something new. One
reconciliation covers all changes up to then. Each pod has at most one write in flight; a decision about the pod in the
meantime is postponed, and made again once the result of that write is known. All state can be read again from the
annotations.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from collections.abc import Iterable

from jupyter_gpu.kube import Recorder
from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.gpu import NO_REASON
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.new_pods.review import review_in_steps
from jupyter_gpu_scheduler.rules.queue.aging import stamped
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide, decide_in_steps, only_position
from jupyter_gpu_scheduler.rules.queue.repair import repair
from jupyter_gpu_scheduler.rules.queue.slider_end import moved_end
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.records import PodRecord
from jupyter_gpu_scheduler.rules.wire import node_reference, pod_reference

from .cluster_cache import ClusterCache
from .events import announce
from .metrics import SchedulerMetrics
from .notebooks import STEPS
from .pending_write import PendingWrite
from .waiting import WaitingPods
from .writer import AllocationWriter, WriteResult

YIELD_SECONDS = 0.005
"""Seconds of deciding after which other tasks get a turn."""
CLAIMED_TWICE = "GpusClaimedTwice"
"""Reason of an Event."""
WORKER_FAILED = "GpusWorkerFailed"
"""Reason of an Event."""
NO_CONTROLLER = "GpusWorkerControllerAway"
"""Reason of an Event."""
UNANSWERED = (
    "GPUs of another node wait for a worker pod, and the worker controller (jupyter-gpu-workers) does not answer. "
    "Tell your administrator."
)
TRIES = 3
"""Attempts to decide step by step for a node that keeps changing; after these, it is decided in one go."""
BACKOFF_SECONDS = (0.5, 60.0)
"""Seconds before a refused decision is tried again: at first, at most."""

_log = logging.getLogger(__name__)


class Controller:
    """The control loop of one process; `lead` runs while the process leads."""

    def __init__(
        self,
        cache: ClusterCache,
        writer: AllocationWriter,
        recorder: Recorder,
        metrics: SchedulerMetrics,
        policy: Policy,
        *,
        wake_seconds: float = 1.0,
        position_seconds: float = 10.0,
    ) -> None:
        self._cache = cache
        self._snapshot = cache.snapshot
        self._writer = writer
        self._recorder = recorder
        self._metrics = metrics
        self._policy = policy
        self._changed = asyncio.Event()
        self._writes: asyncio.TaskGroup | None = None
        self._postponed: set[str] = set()  # nodes to decide again when a write's result is known
        self._backoffs: dict[str, float] = {}  # uid → seconds of its last back-off
        self._backing_off: set[str] = set()
        self._position_seconds = position_seconds
        self._last_write: dict[str, float] = {}  # uid → time of its last write
        self._position_timers: dict[str, asyncio.TimerHandle] = {}  # nodes whose pods are due for new positions
        self._waiting = WaitingPods(cache, self._apply, policy, wake_seconds=wake_seconds)
        self._reported_problems: dict[str, str] = {}  # uid → problem reported to its user
        self._reported_broken: dict[str, frozenset[str]] = {}  # node → broken GPUs reported to their holders
        self._reported_claims: dict[str, tuple[str, ...]] = {}  # uuid → nodes that got an Event about it

    def changed(self) -> None:
        """Note that something changed, and return at once. Without the lead it is forgotten: `lead` reviews all."""
        if self._writes is None:
            self._cache.catch_up()
            self._cache.take_changed_pods()
            self._cache.take_changed_nodes()
            self._cache.take_moved_ends()
        self._changed.set()

    @property
    def waiting(self) -> WaitingPods:
        """The pods without a node."""
        return self._waiting

    @property
    def leading(self) -> bool:
        """Whether this process makes the decisions now."""
        return self._writes is not None

    async def lead(self) -> None:
        """Lead until cancelled; first resolve the writes that were left unanswered when this process led before."""
        await self._resolve_unanswered_writes()
        async with asyncio.TaskGroup() as writes:
            self._begin(writes)
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._cache.seconds_until_due()):
                            await self._changed.wait()
                    self._changed.clear()
                    self._cache.catch_up()
                    await self.reconcile()
            finally:
                self._writes = None
                self._waiting.stop()
                for timer in self._position_timers.values():
                    timer.cancel()
                self._position_timers.clear()
                self._metrics.leading.set(0)

    def _begin(self, writes: asyncio.TaskGroup) -> None:
        self._writes = writes
        self._reported_problems.clear()
        self._reported_broken.clear()
        self._reported_claims.clear()
        self._waiting.begin()
        self._cache.forget_due()
        self._cache.mark_all_changed()
        self._metrics.leading.set(1)

    # --- one reconciliation -------------------------------------------------------------------------------------------

    async def reconcile(self) -> None:
        """Decide for all that changed since the last time."""
        pods, nodes = self._cache.take_changed_pods(), self._cache.take_changed_nodes()
        for uid in pods:
            self._pod_changed(uid)
        yield_point = _YieldPoint()
        for node in nodes:
            self._apply(repair(self._snapshot, node), "repair", node)
            self._report_broken(node)
            await yield_point.yield_if_due()
        for found in review_in_steps(self._snapshot, self._policy, nodes):
            if found:
                self._apply((found,), "nominate")
            await yield_point.yield_if_due()
        await self._divide(nodes, yield_point)
        for node in dict.fromkeys((*nodes, *self._cache.take_changed_nodes())):
            self._cache.reclaim(node)
            self._cache.begin_deciding(node)
            with self._metrics.decide_seconds.time():
                self._apply(await self._decide(node, yield_point), "", node, decided=node)
            self._waiting.wake_fitting(node)
            await yield_point.yield_if_due()
        self._waiting.enqueue_early()
        if nodes:
            self._waiting.wake_apart()
        for uid in self._cache.take_moved_ends():
            self._apply(moved_end(self._snapshot, uid), "")
            await yield_point.yield_if_due()
        self._write_services()
        self._metrics.waiting.set(self._waiting.count)
        self._report_claimed_twice()
        self._report_unanswered()
        self._report_moved()

    async def _divide(self, nodes: Iterable[str], yield_point: _YieldPoint) -> None:
        """Divide the wishes of notebooks among nodes, next in line first, as these nodes changed, or the notebooks."""
        for uid in self._cache.notebooks.to_review(nodes):
            for _ in range(STEPS):
                if not self._cache.divide(uid):
                    break
                await yield_point.yield_if_due()

    def _write_services(self) -> None:
        """Start to write each ``service`` that was decided, and went with no decision about GPUs."""
        for uid in self._cache.notebooks.all_due():
            record = self._cache.record(uid)
            if record is None or record.state.allocated is None or self._writes is None:
                continue
            if self._cache.in_flight(uid) or uid in self._backing_off:
                self._postponed.update(self._cache.nodes_of(uid))
                continue
            self._start_write(record, self._cache.assume(uid, record.state.allocated))

    async def _decide(self, node: str, yield_point: _YieldPoint) -> tuple[Decision, ...]:
        """Decide for a node; yield to other tasks in a long line, unless the node changes too often."""
        for _ in range(TRIES):
            version, steps = self._snapshot.version(node), decide_in_steps(self._snapshot, node)
            try:
                while self._snapshot.version(node) == version:
                    next(steps)
                    await yield_point.yield_if_due()
            except StopIteration as done:
                decisions: tuple[Decision, ...] = done.value
                return decisions
        return decide(self._snapshot, node)

    def _apply(self, decisions: Iterable[Decision], kind: str, node: str = "", *, decided: str = "") -> None:
        """Start to write the decisions that can be written now; postpone the others. ``decided``: see `assume`."""
        for decision in decisions:
            uid = decision.uid
            record = self._cache.record(uid)
            if record is None:
                continue
            if (
                self._writes is None
                or self._cache.in_flight(uid)
                or uid in self._backing_off
                or not self._takes_only_free_gpus(decision)
            ):
                self._postponed.update((node, *self._cache.nodes_of(uid)))
                continue
            allocated = stamped(decision.allocated, time.time())
            if self._delayed_position(uid, allocated):
                continue
            self._metrics.decisions.labels(kind or _kind(decision)).inc()
            self._start_write(record, self._cache.assume(uid, allocated, decided=decided))
        self._metrics.in_flight.set(self._cache.writes_in_flight)

    def _start_write(self, record: PodRecord, pending_write: PendingWrite) -> None:
        assert self._writes is not None
        self._last_write[record.state.uid] = time.monotonic()
        self._writes.create_task(self._carry_out(record, pending_write))

    def _delayed_position(self, uid: str, allocated: Allocated) -> bool:
        """Delay a write that only updates a pod's position in line, and tell whether it was delayed.

        Otherwise each change of one pod would cost a write for every pod behind it.
        """
        pod = self._snapshot.pod(uid)
        wait = self._last_write.get(uid, -math.inf) + self._position_seconds - time.monotonic()
        if pod is None or wait <= 0 or not only_position(pod.allocated, allocated):
            return False
        node = pod.node or pod.nominated
        if node not in self._position_timers:
            self._position_timers[node] = asyncio.get_running_loop().call_later(wait, self._publish_positions, node)
        return True

    def _publish_positions(self, node: str) -> None:
        self._position_timers.pop(node, None)
        self._cache.mark_changed(node)

    def _takes_only_free_gpus(self, decision: Decision) -> bool:
        """Tell whether every GPU that the decision takes is free already, and not only after a write in flight."""
        pod = self._snapshot.pod(decision.uid)
        for share in decision.added:
            holders = self._snapshot.holders(share.uuid, pod.node if pod else None)
            others = sum(milli for uid, milli in holders.items() if uid != decision.uid)
            if others + share.milli > MILLI_PER_GPU:
                return False
        return True

    async def _carry_out(self, record: PodRecord, pending_write: PendingWrite) -> None:
        began = time.monotonic()
        uid = record.state.uid
        result = await self._writer.write(record, pending_write.allocated, pending_write.service)
        nodes = self._cache.nodes_of(uid)
        self._cache.finish_write(uid, pending_write, result.found)
        self._metrics.in_flight.set(self._cache.writes_in_flight)
        if result.kind == "done":
            self._metrics.write_seconds.observe(time.monotonic() - began)
            self._backoffs.pop(uid, None)
            announce(self._recorder, record.state, pending_write.allocated)
        elif result.kind != "conflict" or self._stuck(record):
            self._back_off(record.state, result)
        else:
            self._waiting.enqueue(uid)  # kube-scheduler often writes its condition of the pod at the same moment
        for node in (*nodes, *self._cache.nodes_of(uid)):
            if node in self._postponed:
                self._postponed.discard(node)
                self._cache.mark_changed(node)

    def _stuck(self, record: PodRecord) -> bool:
        """Tell whether no newer version is known after a conflict: the same decision would be made again at once."""
        now = self._cache.record(record.state.uid)
        return now is not None and now.resource_version == record.resource_version

    def _back_off(self, pod: PodState, result: WriteResult) -> None:
        """Pause decisions about a pod, longer each time, so that a refused decision is not repeated at once."""
        seconds = min(self._backoffs.get(pod.uid, BACKOFF_SECONDS[0] / 2) * 2, BACKOFF_SECONDS[1])
        if result.kind == "refused":
            text = "The decision for pod %s/%s was refused; it is tried again in %.1f s: %s"
            _log.error(text, pod.namespace, pod.name, seconds, result.message)
        self._backoffs[pod.uid] = seconds
        self._backing_off.add(pod.uid)
        asyncio.get_running_loop().call_later(seconds, self._retry, pod.uid)

    def _retry(self, uid: str) -> None:
        self._backing_off.discard(uid)
        if self._cache.record(uid) is None:
            self._backoffs.pop(uid, None)
        for node in self._cache.nodes_of(uid):
            self._cache.mark_changed(node)
        self._waiting.enqueue(uid)

    # --- what is reported ---------------------------------------------------------------------------------------------

    def _pod_changed(self, uid: str) -> None:
        """Handle a new or changed pod."""
        record = self._cache.record(uid)
        self._waiting.pod_changed(uid)
        problem = record.problem if record else ""
        if record and problem and self._reported_problems.get(uid) != problem:
            about = pod_reference(record.state, record.resource_version)
            self._recorder.event(about, "Warning", "GpusInvalidRequest", problem)
        if problem:
            self._reported_problems[uid] = problem
        else:
            self._reported_problems.pop(uid, None)
        if record is None:
            self._last_write.pop(uid, None)
        state = self._snapshot.pod(uid)
        if state and state.allocated and stamped(state.allocated, 0) != state.allocated:  # by an old version of ours
            self._apply((Decision(uid, state.allocated),), "reason")

    def _report_broken(self, node: str) -> None:
        """Publish an Event for each pod that has a GPU which stopped working, also if a worker has it for the pod."""
        known = self._cache.node(node)
        broken = {gpu.uuid: gpu.health or NO_REASON for gpu in (known and known.gpus) or () if not gpu.healthy}
        for uuid in broken.keys() - self._reported_broken.get(node, frozenset()):
            for uid in self._snapshot.holders(uuid, node):
                if state := self._snapshot.pod(uid):
                    text = f"GPU {uuid} does not work: {broken[uuid].removesuffix('.')}."
                    about = (state, self._snapshot.pod(state.notebook) if state.notebook else None)
                    for pod in filter(None, about):
                        self._recorder.event(pod_reference(pod), "Warning", "GpusUnhealthy", text)
        if broken:
            self._reported_broken[node] = frozenset(broken)
        else:
            self._reported_broken.pop(node, None)

    def _report_unanswered(self) -> None:
        """Publish an Event for each pod of whose new worker the worker controller tells nothing."""
        for uid in self._cache.notebooks.unanswered():
            if state := self._snapshot.pod(uid):
                self._recorder.event(pod_reference(state), "Warning", NO_CONTROLLER, UNANSWERED)

    def _report_moved(self) -> None:
        """Publish an Event for each part that went to another node as its worker did not run."""
        for uid, text in self._cache.notebooks.take_moved():
            if state := self._snapshot.pod(uid):
                self._recorder.event(pod_reference(state), "Warning", WORKER_FAILED, text)

    def _report_claimed_twice(self) -> None:
        """Report GPUs that are in the inventories of several nodes; each node's pods go on with its own."""
        found = {uuid: self._snapshot.homes(uuid) for uuid in self._snapshot.claimed_twice()}
        for uuid, nodes in found.items():
            if self._reported_claims.get(uuid) != nodes:
                text = (
                    f"GPU {uuid} is in the inventories of {', '.join(nodes[:5])}. If a machine got another name, "
                    "delete the Node of the old one. If not, two drivers report the same uuid."
                )
                _log.error("%s", text)
                for node in nodes:
                    self._recorder.event(
                        node_reference(node, self._cache.node_uid(node)), "Warning", CLAIMED_TWICE, text
                    )
        self._reported_claims = found
        self._metrics.claimed_twice.set(len(found))

    async def _resolve_unanswered_writes(self) -> None:
        """Find out the results of writes whose answers never arrived."""
        for uid, pending_write in self._cache.uncertain():
            if record := self._cache.record(uid):
                found = await self._writer.read(record.state.namespace, record.state.name, uid)
                self._cache.finish_write(uid, pending_write, found)


class _YieldPoint:
    """A point at which a long computation yields to other tasks now and then."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def yield_if_due(self) -> None:
        """Yield to other tasks if it is time. Call this between two steps."""
        if time.monotonic() - self._since > YIELD_SECONDS:
            await asyncio.sleep(0)
            self._since = time.monotonic()


def _kind(decision: Decision) -> str:
    if decision.added:
        return "grant"
    return "revoke" if decision.removed else "reason"
