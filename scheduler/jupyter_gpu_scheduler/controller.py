"""Keeps the pods' ``allocated`` as they should be: looks at what changed, decides, and has it written.

It sleeps until a watch, an answer of the API server or kube-scheduler tells something new. One look covers all that
changed meanwhile. Of one pod at most one write is on its way; what is decided about it until then is decided again
when that write's outcome is known. Nothing is remembered that could not be found again in the annotations.
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
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.new_pods.review import reviewing
from jupyter_gpu_scheduler.rules.queue.aging import stamped
from jupyter_gpu_scheduler.rules.queue.decide import Decision, decide, deciding, only_place
from jupyter_gpu_scheduler.rules.queue.repair import repair
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.records import PodRecord
from jupyter_gpu_scheduler.rules.state.snapshot import PodState
from jupyter_gpu_scheduler.rules.wire import about_node, about_pod

from .cluster_cache import ClusterCache, PendingWrite
from .events import announce
from .metrics import Metrics
from .waiting import WaitingPods
from .writer import Outcome, Writer

BREATH = 0.005
"""Seconds of deciding after which others get their turn."""
CLAIMED_TWICE = "GpusClaimedTwice"
"""Reason of an Event."""
TRIES = 3
"""Attempts to decide for a node that changes in between, until it is decided in one go."""
REST = (0.5, 60.0)
"""Seconds before something that was refused is tried again: at first, at most."""

_log = logging.getLogger(__name__)


class Controller:
    """The controller of one process; `lead` runs while the process leads."""

    def __init__(
        self,
        cache: ClusterCache,
        writer: Writer,
        recorder: Recorder,
        metrics: Metrics,
        policy: Policy,
        *,
        wake_seconds: float = 1.0,
        place_seconds: float = 10.0,
    ) -> None:
        self._cache = cache
        self._snapshot = cache.snapshot
        self._writer = writer
        self._recorder = recorder
        self._metrics = metrics
        self._policy = policy
        self._changed = asyncio.Event()
        self._writes: asyncio.TaskGroup | None = None
        self._postponed: set[str] = set()  # nodes to look at again when a write's outcome is known
        self._resting: dict[str, float] = {}  # uid → seconds of its last rest
        self._asleep: set[str] = set()
        self._place_seconds = place_seconds
        self._written: dict[str, float] = {}  # uid → when it was told something last
        self._telling: dict[str, asyncio.TimerHandle] = {}  # nodes whose pods are to be told their places
        self._waiting = WaitingPods(cache, self._apply, policy, wake_seconds=wake_seconds)
        self._told: dict[str, str] = {}  # uid → problem that its user knows
        self._broken: dict[str, frozenset[str]] = {}  # node → GPUs whose owners know
        self._claims: dict[str, tuple[str, ...]] = {}  # uuid → nodes that were told that others have it, too

    def changed(self) -> None:
        """Note that something is new; returns at once. A non-leader forgets it: leading begins with a full review."""
        if self._writes is None:
            self._cache.catch_up()
            self._cache.take_news()
            self._cache.take_dirty()
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
        """Lead until cancelled, after settling what an earlier leader, or we before, may have left half done."""
        await self._resolve()
        async with asyncio.TaskGroup() as writes:
            self._begin(writes)
            try:
                while True:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._cache.pause()):
                            await self._changed.wait()
                    self._changed.clear()
                    self._cache.catch_up()
                    await self._look()
            finally:
                self._writes = None
                self._waiting.stop()
                for timer in self._telling.values():
                    timer.cancel()
                self._telling.clear()
                self._metrics.leading.set(0)

    def _begin(self, writes: asyncio.TaskGroup) -> None:
        self._writes = writes
        self._told.clear()
        self._broken.clear()
        self._claims.clear()
        self._waiting.begin()
        self._cache.mark_all()
        self._metrics.leading.set(1)

    # --- one look -----------------------------------------------------------------------------------------------------

    async def _look(self) -> None:
        news, dirty = self._cache.take_news(), self._cache.take_dirty()
        for uid in news:
            self._hear(uid)
        breath = _Breath()
        for node in dirty:
            self._apply(repair(self._snapshot, node), "repair", node)
            self._tell_broken(node)
            await breath.take()
        for found in reviewing(self._snapshot, self._policy, dirty):
            if found:
                self._apply((found,), "nominate")
            await breath.take()
        for node in dict.fromkeys((*dirty, *self._cache.take_dirty())):
            with self._metrics.decide_seconds.time():
                self._apply(await self._decide(node, breath), "", node)
            self._cache.unmark(node)  # what was just decided is no news
            self._waiting.rouse(node)
            await breath.take()
        self._metrics.waiting.set(self._waiting.count)
        self._tell_claimed_twice()

    async def _decide(self, node: str, breath: _Breath) -> tuple[Decision, ...]:
        """Decide for a node; other tasks get their turn while a line is long, unless it changes all the time."""
        for _ in range(TRIES):
            version, steps = self._snapshot.version(node), deciding(self._snapshot, node)
            try:
                while self._snapshot.version(node) == version:
                    next(steps)
                    await breath.take()
            except StopIteration as done:
                decisions: tuple[Decision, ...] = done.value
                return decisions
        return decide(self._snapshot, node)

    def _apply(self, decisions: Iterable[Decision], kind: str, node: str = "") -> None:
        """Have decisions written, those that can be now."""
        for decision in decisions:
            uid = decision.uid
            record = self._cache.record(uid)
            if record is None:
                continue
            if self._writes is None or self._cache.in_flight(uid) or uid in self._asleep or not self._safe(decision):
                self._postponed.update((node, *self._cache.places(uid)))
                continue
            allocated = stamped(decision.allocated, time.time())
            if self._told_just_now(uid, allocated):
                continue
            self._metrics.decisions.labels(kind or _kind(decision)).inc()
            pending_write = self._cache.assume(uid, allocated)
            self._written[uid] = time.monotonic()
            self._writes.create_task(self._carry_out(record, pending_write))
        self._metrics.in_flight.set(self._cache.writes_in_flight)

    def _told_just_now(self, uid: str, allocated: Allocated) -> bool:
        """Delay a write that only updates a pod's place in line, and tell whether it was delayed.

        Changes to other pods must not cost a write each time.
        """
        pod = self._snapshot.pod(uid)
        wait = self._written.get(uid, -math.inf) + self._place_seconds - time.monotonic()
        if pod is None or wait <= 0 or not only_place(pod.allocated, allocated):
            return False
        node = pod.node or pod.nominated
        if node not in self._telling:
            self._telling[node] = asyncio.get_running_loop().call_later(wait, self._tell_places, node)
        return True

    def _tell_places(self, node: str) -> None:
        self._telling.pop(node, None)
        self._cache.mark(node)

    def _safe(self, decision: Decision) -> bool:
        """Tell whether every GPU the decision takes is free by confirmed records, not only by writes in flight."""
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
        outcome = await self._writer.write(record, pending_write.allocated)
        places = self._cache.places(uid)
        self._cache.settle(uid, pending_write, outcome.found)
        self._metrics.in_flight.set(self._cache.writes_in_flight)
        if outcome.kind == "done":
            self._metrics.write_seconds.observe(time.monotonic() - began)
            self._resting.pop(uid, None)
            announce(self._recorder, record.state, pending_write.allocated)
        elif outcome.kind != "conflict" or self._stuck(record):
            self._rest(record.state, outcome)
        else:
            self._waiting.enqueue(uid)  # kube-scheduler writes its own condition of a pod just when we do
        for node in (*places, *self._cache.places(uid)):
            if node in self._postponed:
                self._postponed.discard(node)
                self._cache.mark(node)

    def _stuck(self, record: PodRecord) -> bool:
        """Tell whether a conflict brought no newer version, so that the same would be decided again at once."""
        now = self._cache.record(record.state.uid)
        return now is not None and now.resource_version == record.resource_version

    def _rest(self, pod: PodState, outcome: Outcome) -> None:
        """Leave a pod alone for a while, longer each time: a refused decision is not repeated at once."""
        seconds = min(self._resting.get(pod.uid, REST[0] / 2) * 2, REST[1])
        if outcome.kind == "refused":
            text = "What was decided for pod %s/%s is refused, tried again in %.1f s: %s"
            _log.error(text, pod.namespace, pod.name, seconds, outcome.message)
        self._resting[pod.uid] = seconds
        self._asleep.add(pod.uid)
        asyncio.get_running_loop().call_later(seconds, self._rested, pod.uid)

    def _rested(self, uid: str) -> None:
        self._asleep.discard(uid)
        if self._cache.record(uid) is None:
            self._resting.pop(uid, None)
        for node in self._cache.places(uid):
            self._cache.mark(node)
        self._waiting.enqueue(uid)

    # --- what is reported ---------------------------------------------------------------------------------------------

    def _hear(self, uid: str) -> None:
        """Handle a new or changed pod."""
        record = self._cache.record(uid)
        self._waiting.hear(uid)
        problem = record.problem if record else ""
        if record and problem and self._told.get(uid) != problem:
            about = about_pod(record.state, record.resource_version)
            self._recorder.event(about, "Warning", "GpusInvalidRequest", problem)
        if problem:
            self._told[uid] = problem
        else:
            self._told.pop(uid, None)
        if record is None:
            self._written.pop(uid, None)
        state = self._snapshot.pod(uid)
        if (
            state and state.allocated and stamped(state.allocated, 0) != state.allocated
        ):  # of an earlier version of ours
            self._apply((Decision(uid, state.allocated),), "reason")

    def _tell_broken(self, node: str) -> None:
        """Tell the pods that have a GPU that stopped working."""
        known = self._cache.node(node)
        broken = {gpu.uuid: gpu.health for gpu in (known and known.gpus) or () if not gpu.healthy}
        for uuid in broken.keys() - self._broken.get(node, frozenset()):
            for uid in self._snapshot.holders(uuid, node):
                if state := self._snapshot.pod(uid):
                    text = f"GPU {uuid} does not work: {broken[uuid] or 'the node gives no reason'}."
                    self._recorder.event(about_pod(state), "Warning", "GpusUnhealthy", text)
        if broken:
            self._broken[node] = frozenset(broken)
        else:
            self._broken.pop(node, None)

    def _tell_claimed_twice(self) -> None:
        """Tell of GPUs that several nodes say they have: each node's pods go on with its own."""
        found = {uuid: self._snapshot.homes(uuid) for uuid in self._snapshot.claimed_twice()}
        for uuid, nodes in found.items():
            if self._claims.get(uuid) != nodes:
                text = (
                    f"GPU {uuid} is in the inventories of {', '.join(nodes[:5])}. If a machine got another name, "
                    "delete the Node of the old one. If not, two drivers tell the same uuid."
                )
                _log.error("%s", text)
                for node in nodes:
                    self._recorder.event(about_node(node, self._cache.node_uid(node)), "Warning", CLAIMED_TWICE, text)
        self._claims = found
        self._metrics.claimed_twice.set(len(found))

    async def _resolve(self) -> None:
        """Find out what became of writes whose answer was never heard."""
        for uid, pending_write in self._cache.uncertain():
            if record := self._cache.record(uid):
                found = await self._writer.read(record.state.namespace, record.state.name, uid)
                self._cache.settle(uid, pending_write, found)


class _Breath:
    """A pause for other tasks now and then."""

    def __init__(self) -> None:
        self._since = time.monotonic()

    async def take(self) -> None:
        """Yield to other tasks if it is time; to be called between two steps."""
        if time.monotonic() - self._since > BREATH:
            await asyncio.sleep(0)
            self._since = time.monotonic()


def _kind(decision: Decision) -> str:
    if decision.added:
        return "grant"
    return "revoke" if decision.removed else "reason"
