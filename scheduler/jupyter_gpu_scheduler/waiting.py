"""Pods without a node: put in line when kube-scheduler finds no room, and tried again when there is room."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from jupyter_gpu_scheduler.rules.new_pods.guests import could_be_guest, next_guests
from jupyter_gpu_scheduler.rules.new_pods.nominate import is_early, nominate
from jupyter_gpu_scheduler.rules.new_pods.places import fits_apart, next_of_kinds
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import Decision
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.offers import OfferedNodes, offered_nodes
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

from .cluster_cache import ClusterCache

WAKES = "wakes"
"""Key in a waiting pod's ``allocated``: how often it was written only so that kube-scheduler asks again."""
BLOCKED_AFTER = 10
"""Multiple of ``wake_seconds`` after which a pod that has room, and is not asked for, counts as blocked."""

UNSEEN_SECONDS = 60.0
"""Seconds within which the watch must show a pod that kube-scheduler asked for; then the pod is forgotten."""

Apply = Callable[[Iterable[Decision], str], None]


@dataclass(slots=True)
class _WaitingPod:
    """The state of one waiting pod."""

    offered: OfferedNodes | None = None
    """The nodes in kube-scheduler's last request; ``None``: there was room, or it did not ask."""
    as_guest: bool = False
    """Whether it starts on one of them as a guest, if kube-scheduler binds it there: so it stands in no line yet."""
    preempts: bool = False
    """Whether kube-scheduler may end other pods for it on one of these nodes."""
    ahead: tuple[str, ...] = ()
    """Nodes to which kube-scheduler may be binding it now, before it holds anything there."""
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
    """The waiting pods of one process. ``apply`` starts to write decisions, if this process leads."""

    def __init__(self, cache: ClusterCache, apply: Apply, policy: Policy, *, wake_seconds: float) -> None:
        self._cache = cache
        self._snapshot = cache.snapshot
        self._apply = apply
        self._policy = policy
        self._wake_seconds = wake_seconds
        self._pods: dict[str, _WaitingPod] = {}
        self._early: dict[str, None] = {}
        """Pods that take no ticket before others of their nodes are decided."""

    @property
    def count(self) -> int:
        """Number of waiting pods."""
        return len(self._pods)

    def asked(self, uid: str, nodes: tuple[str, ...], fits: bool, *, as_guest: bool = False) -> None:
        """Record kube-scheduler's request for a pod, and put the pod in line if it found no room.

        ``as_guest``: it fits only so; then the nodes are recorded, as all of them are known to have no room.
        """
        waiting = self._pods.setdefault(uid, _WaitingPod())
        waiting.cancel_timers()
        waiting.offered = None if fits and not as_guest else offered_nodes(nodes)
        waiting.as_guest = as_guest
        waiting.preempts = False
        waiting.ahead = ()
        if self._cache.record(uid) is None:  # if it is gone already, no watch will report it
            waiting.unseen_timer = asyncio.get_running_loop().call_later(UNSEEN_SECONDS, self.pod_changed, uid)
        self._cache.block(uid, False)
        self._cache.set_offer(uid, waiting.offered)
        self.enqueue(uid)

    def scored(self, uid: str, best: tuple[str, ...]) -> None:
        """Record the best nodes for a pod that wants no GPU: kube-scheduler probably binds it to one of them."""
        if uid in self._pods:
            self._pods[uid].ahead = best

    def coming(self, uid: str) -> dict[str, float]:
        """Return how many other pods are being bound to each node, so that many new pods do not all go to one.

        The Binding of a pod may take long, as its volume is made first. A pod that may go to one of several nodes
        counts in equal parts.
        """
        found: dict[str, float] = {}
        for other, waiting in self._pods.items():
            for node in waiting.ahead if other != uid else ():
                found[node] = found.get(node, 0.0) + 1 / len(waiting.ahead)
        return found

    def bound(self, uid: str) -> None:
        """Note that a pod is bound: from now on it counts on its node."""
        if uid in self._pods:
            self._pods[uid].ahead = ()

    def preempts(self, uid: str, nodes: tuple[str, ...]) -> None:
        """Put a pod in line on one of these nodes, where kube-scheduler may end other pods for it."""
        self.asked(uid, nodes, fits=False)
        self._pods[uid].preempts = True

    def enqueue(self, uid: str) -> None:
        """Put a pod into the line of one of the offered nodes; one that stands in line stays there."""
        waiting, state = self._pods.get(uid), self._snapshot.pod(uid)
        if waiting and waiting.offered and not waiting.as_guest and state and state.pending and not state.gone:
            decision = nominate(self._snapshot, state, waiting.offered.names, self._policy)
            if decision is not None:
                self._apply((decision,), "nominate")
            elif is_early(self._snapshot, state, waiting.offered.names):
                self._early[uid] = None

    def enqueue_early(self) -> None:
        """Put the pods into a line for which it was too early; call this after nodes are decided."""
        early, self._early = self._early, {}
        for uid in early:
            self.enqueue(uid)

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
        """Make sure that kube-scheduler asks again for the pods in this node's line that fit now.

        As a rule the change that made room has woken it. But it may have asked before this process knew of the change.
        """
        full = set()
        for pod in self._snapshot.nominated(node):  # of one kind, later pods have no more room
            if pod.blocked or pod.kind in full or self._cache.record(pod.uid) is None:  # a worker without a pod yet
                continue
            if not self._fits(pod):
                full.add(pod.kind)
                continue
            waiting = self._pods.setdefault(pod.uid, _WaitingPod())
            if waiting.alarm is None:
                waiting.alarm = self._alarm(self._wake_seconds, pod.uid)

    def wake_apart(self) -> None:
        """Make sure that kube-scheduler asks again for pods that another node than that of their line could serve now.

        Or where they could be guests.
        Of each kind only the next one: once it is bound, the one behind it is.
        """
        apart = (pod for pod in next_of_kinds(self._snapshot) if fits_apart(self._cache.notebooks.chooser, pod))
        guests = (pod for pod in next_guests(self._snapshot) if could_be_guest(self._snapshot, pod))
        for pod in (*apart, *guests):
            waiting = self._pods.setdefault(pod.uid, _WaitingPod())
            if waiting.alarm is None:
                waiting.alarm = self._alarm(self._wake_seconds, pod.uid)

    def begin(self) -> None:
        """Begin to lead: forget the pods that are gone by now."""
        for uid in tuple(self._pods):
            self.pod_changed(uid)

    def stop(self) -> None:
        """Cancel all alarms."""
        for waiting in self._pods.values():
            waiting.cancel_timers()

    def _alarm(self, seconds: float, uid: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._alarm_fired, uid)

    def _alarm_fired(self, uid: str) -> None:
        """Write to a pod that has room and was not asked for; if that did not help, count it as blocked."""
        waiting, pod = self._pods.get(uid), self._snapshot.pod(uid)
        if waiting is None:
            return
        waiting.alarm = None
        if pod is None or not pod.pending or pod.allocated is None or not self._may_start(pod):
            waiting.woken = False
        elif not waiting.woken:
            waiting.woken = True
            waiting.alarm = self._alarm(BLOCKED_AFTER * self._wake_seconds, uid)
            wakes = pod.allocated.extra.get(WAKES)
            extra = {**pod.allocated.extra, WAKES: wakes + 1 if isinstance(wakes, int) else 1}
            self._apply((Decision(uid, replace(pod.allocated, extra=extra)),), "wake")
        else:  # it waits for a CPU or a volume: it keeps its ticket, and no GPUs are kept back for it
            self._cache.block(uid, True)

    def _may_start(self, pod: PodState) -> bool:
        apart = fits_apart(self._cache.notebooks.chooser, pod)
        return self._fits(pod) or apart or could_be_guest(self._snapshot, pod)

    def _fits(self, pod: PodState) -> bool:
        return bool(filter_nodes(self._snapshot, pod, (pod.nominated,)).fitting)
