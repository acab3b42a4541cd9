"""Pods without a node: in line from the first time that kube-scheduler finds no room, and woken when room comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jupyter_gpu_scheduler.rules.new_pods.nominate import nominate
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import Decision
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.offers import OfferedNodes, offered_nodes
from jupyter_gpu_scheduler.rules.state.snapshot import PodState

from .cluster_cache import ClusterCache

WAKES = "wakes"
"""Key in a waiting pod's ``allocated``: how often it was written only to have kube-scheduler ask again."""
BLOCKED_AFTER = 10
"""Times ``wake_seconds`` after which a pod that has room and is not asked for must wait for something else."""

UNSEEN_SECONDS = 60.0
"""Seconds the watch may take to show a pod that kube-scheduler asked for, until it is forgotten."""

Apply = Callable[[Iterable[Decision], str], None]


@dataclass(slots=True)
class _WaitingPod:
    """The state of one waiting pod."""

    offered: OfferedNodes | None = None
    """Nodes kube-scheduler would have taken, at its last question; ``None``: there was room, or it did not ask us."""
    preempts: bool = False
    """Whether kube-scheduler may end other pods for it on one of these nodes."""
    ahead: tuple[str, ...] = ()
    """Nodes to which kube-scheduler may be binding it now; it has nothing there yet."""
    alarm: asyncio.TimerHandle | None = None
    woken: bool = False
    unseen_timer: asyncio.TimerHandle | None = None
    """Set while the watch has not shown the pod."""

    def cancel_timers(self) -> None:
        """Cancel the timers."""
        for timer in (self.alarm, self.unseen_timer):
            if timer:
                timer.cancel()
        self.alarm = self.unseen_timer = None
        self.woken = False


class WaitingPods:
    """The waiting pods of one process. ``apply`` has decisions written, where this process leads."""

    def __init__(self, cache: ClusterCache, apply: Apply, policy: Policy, *, wake_seconds: float) -> None:
        self._cache = cache
        self._snapshot = cache.snapshot
        self._apply = apply
        self._policy = policy
        self._wake_seconds = wake_seconds
        self._pods: dict[str, _WaitingPod] = {}

    @property
    def count(self) -> int:
        """Number of waiting pods."""
        return len(self._pods)

    def asked(self, uid: str, nodes: tuple[str, ...], fits: bool) -> None:
        """Record kube-scheduler's question for a pod, and put the pod in line where it found no room."""
        waiting = self._pods.setdefault(uid, _WaitingPod())
        waiting.cancel_timers()
        waiting.offered = None if fits else offered_nodes(nodes)
        waiting.preempts = False
        waiting.ahead = ()
        if self._cache.record(uid) is None:  # no watch may ever tell of it, if it is gone already
            waiting.unseen_timer = asyncio.get_running_loop().call_later(UNSEEN_SECONDS, self.pod_changed, uid)
        self._cache.block(uid, False)
        self._cache.set_offer(uid, waiting.offered)
        self.enqueue(uid)

    def scored(self, uid: str, best: tuple[str, ...]) -> None:
        """Record the nodes to one of which a pod without a GPU wish goes, if kube-scheduler follows us."""
        if uid in self._pods:
            self._pods[uid].ahead = best

    def coming(self, uid: str) -> dict[str, float]:
        """Return how many other pods are on their way to each node, so that a sudden crowd is not sent to one.

        The Binding of a pod may take long, as its volume is made before. Where it may go to one of several nodes, it
        counts in equal parts.
        """
        found: dict[str, float] = {}
        for other, waiting in self._pods.items():
            for node in waiting.ahead if other != uid else ():
                found[node] = found.get(node, 0.0) + 1 / len(waiting.ahead)
        return found

    def bound(self, uid: str) -> None:
        """Note that a pod has its node: from now on it is counted there."""
        if uid in self._pods:
            self._pods[uid].ahead = ()

    def preempts(self, uid: str, nodes: tuple[str, ...]) -> None:
        """Put a pod in line for what others free on one of these nodes, where kube-scheduler may end them for it."""
        self.asked(uid, nodes, fits=False)
        self._pods[uid].preempts = True

    def enqueue(self, uid: str) -> None:
        """Put a pod into the line of one of the nodes that were asked for; it stays where it stands already."""
        waiting, state = self._pods.get(uid), self._snapshot.pod(uid)
        if waiting and waiting.offered and state and state.pending and not state.gone:
            decision = nominate(self._snapshot, state, waiting.offered.names, self._policy)
            if decision is not None:
                self._apply((decision,), "nominate")

    def pod_changed(self, uid: str) -> None:
        """Handle a pod's change."""
        waiting, record = self._pods.get(uid), self._cache.record(uid)
        if waiting is None:
            return
        if record is None or record.state.node or record.state.gone:
            waiting.cancel_timers()
            self._cache.set_offer(uid, None)
            del self._pods[uid]
        elif record.state.allocated is None:  # kube-scheduler was faster than our watch, or the record was lost
            self._cache.set_offer(uid, waiting.offered)
            self.enqueue(uid)
        elif waiting.preempts and waiting.offered and record.chosen in waiting.offered:
            self.asked(uid, (record.chosen,), fits=False)

    def wake_fitting(self, node: str) -> None:
        """See to it that kube-scheduler asks again for a pod in this node's line that fits now.

        The change that made room woke it, as a rule. But it may have asked before we heard of that change.
        """
        full = set()
        for pod in self._snapshot.nominated(node):  # of one kind, later pods have no more room
            if pod.blocked or pod.kind in full:
                continue
            if not self._fits(pod):
                full.add(pod.kind)
                continue
            waiting = self._pods.setdefault(pod.uid, _WaitingPod())
            if waiting.alarm is None:
                waiting.alarm = self._alarm(self._wake_seconds, pod.uid)

    def begin(self) -> None:
        """Begin to lead: pods that went meanwhile are forgotten."""
        for uid in tuple(self._pods):
            self.pod_changed(uid)

    def stop(self) -> None:
        """Cancel all alarms."""
        for waiting in self._pods.values():
            waiting.cancel_timers()

    def _alarm(self, seconds: float, uid: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._alarm_fired, uid)

    def _alarm_fired(self, uid: str) -> None:
        """Wake a pod that was not asked for, though it has room."""
        waiting, pod = self._pods.get(uid), self._snapshot.pod(uid)
        if waiting is None:
            return
        waiting.alarm = None
        if pod is None or not pod.pending or pod.allocated is None or not self._fits(pod):
            waiting.woken = False
        elif not waiting.woken:
            waiting.woken = True
            waiting.alarm = self._alarm(BLOCKED_AFTER * self._wake_seconds, uid)
            wakes = pod.allocated.extra.get(WAKES)
            extra = {**pod.allocated.extra, WAKES: wakes + 1 if isinstance(wakes, int) else 1}
            self._apply((Decision(uid, replace(pod.allocated, extra=extra)),), "wake")
        else:  # it waits for a CPU, a volume, …: it keeps its place and keeps nothing from others
            self._cache.block(uid, True)

    def _fits(self, pod: PodState) -> bool:
        return bool(filter_nodes(self._snapshot, pod, (pod.nominated,)).fitting)
