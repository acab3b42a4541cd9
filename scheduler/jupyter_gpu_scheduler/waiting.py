"""Pods without a node: in line from the first time that kube-scheduler finds no room, and woken when room comes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from .candidates import filter_nodes
from .decide import Decision
from .mirror import Mirror
from .nominate import nominate
from .offers import Offer, offer
from .policy import Policy
from .snapshot import PodState

WAKES = "wakes"
"""Key in a waiting pod's ``allocated``: how often it was written only to have kube-scheduler ask again."""
PATIENCE = 10
"""Times ``wake_seconds`` after which a pod that has room and is not asked for waits for something else."""

STRANGER_SECONDS = 60.0
"""How long the watch may take to show a pod that kube-scheduler asked for, until it is forgotten."""

Apply = Callable[[Iterable[Decision], str], None]


@dataclass(slots=True)
class _Waiting:
    """One of them."""

    offered: Offer | None = None
    """What kube-scheduler would have taken, at its last question; ``None``: there was room, or it did not ask us."""
    alarm: asyncio.TimerHandle | None = None
    woken: bool = False
    stranger: asyncio.TimerHandle | None = None
    """While the watch has not shown it."""

    def calm(self) -> None:
        """No alarm."""
        for timer in (self.alarm, self.stranger):
            if timer:
                timer.cancel()
        self.alarm = self.stranger = None
        self.woken = False


class WaitingPods:
    """Those of one process. ``apply`` has decisions written, where this process leads."""

    def __init__(self, mirror: Mirror, apply: Apply, policy: Policy, *, wake_seconds: float) -> None:
        self._mirror = mirror
        self._snapshot = mirror.snapshot
        self._apply = apply
        self._policy = policy
        self._wake_seconds = wake_seconds
        self._pods: dict[str, _Waiting] = {}

    @property
    def count(self) -> int:
        """How many there are."""
        return len(self._pods)

    def asked(self, uid: str, nodes: tuple[str, ...], fits: bool) -> None:
        """kube-scheduler asked for a pod: where it found no room it is put in line."""
        waiting = self._pods.setdefault(uid, _Waiting())
        waiting.calm()
        waiting.offered = None if fits else offer(nodes)
        if self._mirror.record(uid) is None:  # no watch may ever tell of it, if it is gone already
            waiting.stranger = asyncio.get_running_loop().call_later(STRANGER_SECONDS, self.hear, uid)
        self._mirror.block(uid, False)
        self._mirror.offer(uid, waiting.offered)
        self.enqueue(uid)

    def enqueue(self, uid: str) -> None:
        """Into the line of one of the nodes that were asked for; who is there already stays, and nobody else comes."""
        waiting, state = self._pods.get(uid), self._snapshot.pod(uid)
        if waiting and waiting.offered and state and state.pending and not state.gone:
            decision = nominate(self._snapshot, state, waiting.offered.names, self._policy)
            if decision is not None:
                self._apply((decision,), "nominate")

    def hear(self, uid: str) -> None:
        """A pod came, changed or went."""
        waiting, record = self._pods.get(uid), self._mirror.record(uid)
        if waiting is None:
            return
        if record is None or record.state.node or record.state.gone:
            waiting.calm()
            self._mirror.offer(uid, None)
            del self._pods[uid]
        elif record.state.allocated is None:  # kube-scheduler was faster than our watch, or the record was lost
            self._mirror.offer(uid, waiting.offered)
            self.enqueue(uid)

    def rouse(self, node: str) -> None:
        """See to it that kube-scheduler asks again for a pod in this node's line that fits now.

        The change that made room woke it, as a rule. But it may have asked before we heard of that change.
        """
        full = set()
        for pod in self._snapshot.nominated(node):  # of one kind, who comes later has no more room
            if pod.blocked or pod.kind in full:
                continue
            if not self._fits(pod):
                full.add(pod.kind)
                continue
            waiting = self._pods.setdefault(pod.uid, _Waiting())
            if waiting.alarm is None:
                waiting.alarm = self._alarm(self._wake_seconds, pod.uid)

    def begin(self) -> None:
        """From now on this process leads: who went meanwhile is forgotten."""
        for uid in tuple(self._pods):
            self.hear(uid)

    def stop(self) -> None:
        """No more alarms."""
        for waiting in self._pods.values():
            waiting.calm()

    def _alarm(self, seconds: float, uid: str) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, self._ring, uid)

    def _ring(self, uid: str) -> None:
        """It was not asked for, though it has room."""
        waiting, pod = self._pods.get(uid), self._snapshot.pod(uid)
        if waiting is None:
            return
        waiting.alarm = None
        if pod is None or not pod.pending or pod.allocated is None or not self._fits(pod):
            waiting.woken = False
        elif not waiting.woken:
            waiting.woken = True
            waiting.alarm = self._alarm(PATIENCE * self._wake_seconds, uid)
            wakes = pod.allocated.extra.get(WAKES)
            extra = {**pod.allocated.extra, WAKES: wakes + 1 if isinstance(wakes, int) else 1}
            self._apply((Decision(uid, replace(pod.allocated, extra=extra)),), "wake")
        else:  # it waits for a CPU, a volume, …: it keeps its place and keeps nothing from others
            self._mirror.block(uid, True)

    def _fits(self, pod: PodState) -> bool:
        return bool(filter_nodes(self._snapshot, pod, (pod.nominated,)).fitting)
