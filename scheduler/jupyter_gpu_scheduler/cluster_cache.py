"""The state of the API server as one `ClusterSnapshot`, brought up to date by each change.

Decisions that are not confirmed yet lie over what the watches reported: a write in flight counts as done where it
takes a GPU, and as not done where it frees one. So nothing is given away twice, whatever becomes of the write.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.kube import ObjectChange
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import Allocated, Attached
from jupyter_gpu.model.gpu import DrainingShare, Gpu
from jupyter_gpu_scheduler.rules.queue.aging import overdue_at
from jupyter_gpu_scheduler.rules.queue.pace import Asked, Paced, first, paced
from jupyter_gpu_scheduler.rules.state.offers import Offer
from jupyter_gpu_scheduler.rules.state.records import NodeRecord, PodRecord, Usage, matters, read_node, read_pod, usage
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, PodState

from .settings import LineSettings, PrioritySettings

CLOSED = "What a pod on this node holds cannot be read, so nothing is given here until its node plugin wrote it again."


@dataclass(eq=False, slots=True)
class Flight:
    """A write on its way."""

    allocated: Allocated
    node: str
    written: bool = False
    """A Binding that was done, whose pod the watch has not shown yet."""


class Mirror:
    """Pods and nodes as decisions need them. ``on_change`` is called after each change, on the event loop.

    ``elapsed`` is a clock that never goes back, in seconds; ``now`` tells the seconds since 1970.
    """

    def __init__(
        self,
        on_change: Callable[[], None],
        *,
        namespaces: Collection[str] = (),
        line: LineSettings = LineSettings(),  # noqa: B008 it can't be changed
        priorities: PrioritySettings = PrioritySettings(),  # noqa: B008
        elapsed: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self.snapshot = ClusterSnapshot()
        self._on_change = on_change
        self._namespaces = frozenset(namespaces)
        self._line = line
        self._priorities = priorities
        self._elapsed = elapsed
        self._now = now
        self._overdue: dict[str, float] = {}  # pods in line: when they have waited for too long
        self._ages: list[tuple[float, str]] = []  # a heap of the same
        self._paced: dict[str, Paced] = {}
        self._held_back: set[str] = set()  # pods whose newest wish is not answered yet
        self._alarms: list[tuple[float, str]] = []  # a heap: when to look at which of them
        self._pods: dict[str, PodRecord] = {}
        self._usage: dict[str, Usage] = {}
        self._nodes: dict[str, NodeRecord] = {}
        self._node_uids: dict[str, str] = {}
        self._used: dict[str, dict[str, int]] = {}
        self._unseen: set[str] = set()  # pods that were read and that no watch has shown yet
        self._opaque: dict[str, set[str]] = {}  # node → pods whose `attached` can't be read
        self._flights: dict[str, Flight] = {}
        self._blocked: set[str] = set()
        self._offers: dict[str, Offer] = {}
        self._dirty: dict[str, None] = {}
        self._news: dict[str, None] = {}

    # --- from the watches ---------------------------------------------------------------------------------------------

    def pod_changed(self, change: ObjectChange) -> None:
        """Take over a pod's change from the watch."""
        uid = objects.uid(change.object)
        self._unseen.discard(uid)
        if change.kind == "removed":
            self._forget_pod(uid)
        elif not self._is_news(uid, change.object):
            return
        else:
            self._take_pod(uid, change.object)
        self._on_change()

    def learn(self, pod: Mapping[str, Any]) -> None:
        """Take over a pod that was read directly, as a question about it came before the watch has shown it."""
        uid = objects.uid(pod)
        if uid not in self._pods and matters(pod):
            self._unseen.add(uid)
            self._take_pod(uid, pod)
            self._on_change()

    def unseen(self, uid: str) -> bool:
        """Tell whether a pod was learned but no watch has shown it yet: no watch might ever report that it is gone."""
        return uid in self._unseen

    def forget(self, uid: str) -> None:
        """Remove a pod that was learned and is gone."""
        self._unseen.discard(uid)
        self._forget_pod(uid)
        self._on_change()

    def node_changed(self, change: ObjectChange) -> None:
        """Take over a node's change from the watch."""
        name, uid = objects.name(change.object), objects.uid(change.object)
        if change.kind != "removed":
            self._node_uids[name] = uid
            self._nodes[name] = read_node(change.object)
            self._put_node(name)
        elif self._node_uids.get(name) == uid:  # not if another of that name is there by now
            del self._nodes[name], self._node_uids[name]
            self.snapshot.remove_node(name)
            self._dirty[name] = None
        self._on_change()

    # --- what is known ------------------------------------------------------------------------------------------------

    def record(self, uid: str) -> PodRecord | None:
        """Return a pod as the API server has it, without writes in flight; ``None`` if it is not known."""
        return self._pods.get(uid)

    def node(self, name: str) -> NodeRecord | None:
        """Return a node's record; ``None`` if it is not known."""
        return self._nodes.get(name)

    def node_uid(self, name: str) -> str:
        """Return the UID of a Node object; empty where there is none."""
        return self._node_uids.get(name, "")

    def take_dirty(self) -> tuple[str, ...]:
        """Return the nodes where something changed since the last call, longest ago first."""
        found = tuple(self._dirty)
        self._dirty.clear()
        return found

    def take_news(self) -> tuple[str, ...]:
        """Return the pods that came, changed or went since the last call."""
        found = tuple(self._news)
        self._news.clear()
        return found

    def heard(self, uid: str, pod: Mapping[str, Any]) -> None:
        """Take over a known pod's version from another source, if it is newer than the watch's."""
        if uid in self._pods and self._is_news(uid, pod):
            self._take_pod(uid, pod)
            self._on_change()

    def places(self, uid: str) -> tuple[str, ...]:
        """Return the node that a pod is on, or in whose line it waits."""
        state = self.snapshot.pod(uid)
        found = (state.node, state.nominated) if state else ()
        return tuple(node for node in found if node)

    def mark(self, node: str) -> None:
        """Have a node looked at again."""
        self._dirty[node] = None
        self._on_change()

    def unmark(self, node: str) -> None:
        """Note that a node was just looked at."""
        self._dirty.pop(node, None)

    def mark_all(self) -> None:
        """Have every node and every pod looked at again."""
        self._dirty.update(dict.fromkeys(self._nodes))
        self._news.update(dict.fromkeys(self._pods))
        self._on_change()

    # --- what comes with time -----------------------------------------------------------------------------------------

    def pause(self) -> float | None:
        """Return the seconds until something changes by itself; ``None``: nothing will. See `catch_up`."""
        pauses = [self._alarms[0][0] - self._elapsed()] if self._alarms else []
        if self._ages:
            pauses.append(self._ages[0][0] - self._now())
        return max(0.0, min(pauses)) if pauses else None

    def catch_up(self) -> None:
        """Take note of the time."""
        now = self._elapsed()
        while self._alarms and self._alarms[0][0] <= now:
            _, uid = heapq.heappop(self._alarms)
            self._held_back.discard(uid)
            if uid in self._pods:
                self._pace(uid)
                self._put_pod(uid)
        while self._ages and self._ages[0][0] <= self._now():
            when, uid = heapq.heappop(self._ages)
            if self._overdue.get(uid) == when:
                self._put_pod(uid)

    def capped(self, state: PodState) -> PodState:
        """Return a pod, known here or not, with its namespace's highest priority as its cap."""
        return replace(state, cap=self._priorities.cap(state.namespace))

    # --- what is on its way -------------------------------------------------------------------------------------------

    def in_flight(self, uid: str) -> bool:
        """Tell whether a decision about a pod is not confirmed yet."""
        return uid in self._flights

    def uncertain(self) -> tuple[tuple[str, Flight], ...]:
        """Return the pods with an unconfirmed decision that no watch will report on."""
        return tuple(item for item in self._flights.items() if not item[1].written)

    @property
    def flights(self) -> int:
        """The number of writes in flight."""
        return len(self._flights)

    def assume(self, uid: str, allocated: Allocated, node: str = "") -> Flight:
        """Begin a write about a known pod, replacing an earlier one; ``node``: it binds the pod there."""
        flight = self._flights[uid] = Flight(allocated, node or self._pods[uid].state.node)
        self._put_pod(uid)
        return flight

    def settle(self, uid: str, flight: Flight, found: Mapping[str, Any] | None = None) -> None:
        """End a write: done, refused or without effect; ``found`` is the pod as it is now, where that is known."""
        if self._flights.get(uid) is flight:
            del self._flights[uid]
        if uid in self._pods:
            if found and objects.uid(found) == uid and self._is_news(uid, found):
                self._take_pod(uid, found)
            else:
                self._put_pod(uid)
        self._on_change()

    def bound(self, uid: str, flight: Flight) -> None:
        """Note a done Binding: what is assumed stays so until the watch shows the pod on its node, or gone."""
        record = self._pods.get(uid)
        flight.written = True
        if record and record.state.node:
            self.settle(uid, flight)

    def block(self, uid: str, blocked: bool) -> None:
        """Record whether a waiting pod waits for something other than GPUs: then it keeps nothing back from others."""
        if (uid in self._blocked) != blocked and uid in self._pods:
            (self._blocked.add if blocked else self._blocked.discard)(uid)
            self._put_pod(uid)
            self._on_change()

    def offer(self, uid: str, offered: Offer | None) -> None:
        """Record what kube-scheduler's last question said of a waiting pod; ``None``: nothing that still holds."""
        if uid not in self._pods or self._offers.get(uid) == offered:
            return
        if offered is None:
            del self._offers[uid]
        else:
            self._offers[uid] = offered
        self._put_pod(uid)
        self._on_change()

    # --- inside -------------------------------------------------------------------------------------------------------

    def _is_news(self, uid: str, pod: Mapping[str, Any]) -> bool:
        known = self._pods.get(uid)
        return known is None or objects.newer_version(objects.resource_version(pod), known.resource_version)

    def _take_pod(self, uid: str, pod: Mapping[str, Any]) -> None:
        self._count(uid, None if objects.finished(pod) else usage(pod))
        if not matters(pod) or (self._namespaces and objects.namespace(pod) not in self._namespaces):
            if uid in self._pods:  # its annotations were removed, or it finished and holds nothing any more
                self._forget_record(uid)
            return
        record = self._pods[uid] = read_pod(pod)
        self._news[uid] = None
        self._pace(uid)
        flight = self._flights.get(uid)
        if flight and flight.written and record.state.node:
            del self._flights[uid]
        self._veil(uid, record.state.node if record.opaque else "")
        self._put_pod(uid)

    def _forget_pod(self, uid: str) -> None:
        self._count(uid, None)
        if uid in self._pods:
            self._forget_record(uid)

    def _pace(self, uid: str) -> None:
        """Choose which wish of a pod is answered now: its newest, unless that changes all the time."""
        state, known = self._pods[uid].state, self._paced.get(uid)
        asked, now = Asked(state.requested, state.fault), self._elapsed()
        if known is None:
            self._paced[uid] = first(asked, now, self._line.wish_burst)
            return
        burst, seconds = self._line.wish_burst, self._line.wish_seconds
        self._paced[uid], wait = paced(known, asked, now, burst=burst, seconds=seconds)
        if wait and uid not in self._held_back:
            self._held_back.add(uid)
            heapq.heappush(self._alarms, (now + wait, uid))
            self._on_change()

    def _is_overdue(self, uid: str, allocated: Allocated | None) -> bool:
        when = overdue_at(allocated, self._line.patience_seconds)
        if when is None:
            self._overdue.pop(uid, None)
            return False
        if self._overdue.get(uid) != when:
            self._overdue[uid] = when
            if when > self._now():
                heapq.heappush(self._ages, (when, uid))
                self._on_change()
        return when <= self._now()

    def _forget_record(self, uid: str) -> None:
        del self._pods[uid]
        self._overdue.pop(uid, None)
        self._paced.pop(uid, None)
        self._flights.pop(uid, None)
        self._blocked.discard(uid)
        self._offers.pop(uid, None)
        self._news[uid] = None
        self._veil(uid, "")
        self._mark_places(uid)
        self.snapshot.remove_pod(uid)

    def _put_pod(self, uid: str) -> None:
        """Record and what is on its way, into the snapshot."""
        state, flight, asked = self._pods[uid].state, self._flights.get(uid), self._paced[uid].asked
        if asked.requested != state.requested or asked.fault != state.fault:
            state = replace(state, requested=asked.requested, fault=asked.fault)
        if flight:
            state = _overlay(state, flight)
        if uid in self._blocked:
            state = replace(state, blocked=True)
        if uid in self._offers:
            state = replace(state, offered=self._offers[uid])
        state = replace(self.capped(state), overdue=self._is_overdue(uid, state.allocated))
        if state != self.snapshot.pod(uid):
            self._mark_places(uid)
            self.snapshot.put_pod(state)
            self._mark_places(uid)

    def _mark_places(self, uid: str) -> None:
        for node in self.places(uid):
            self._dirty[node] = None

    def _count(self, uid: str, new: Usage | None) -> None:
        """Count what any pod takes of its node; ``None``: it takes nothing any more."""
        old = self._usage.pop(uid, None)
        if new:
            self._usage[uid] = new
        if old == new:
            return
        for one, sign in ((old, -1), (new, 1)):
            if one:
                used = self._used.pop(one.node, {})
                for name, amount in one.requests.items():
                    used[name] = used.get(name, 0) + sign * amount
                if left := {name: amount for name, amount in used.items() if amount}:  # names of nodes come and go
                    self._used[one.node] = left
                self._put_node(one.node)

    def _veil(self, uid: str, node: str) -> None:
        """Close ``node`` because of this pod, and open where it was the last such pod."""
        for name in [name for name, pods in self._opaque.items() if uid in pods and name != node]:
            self._opaque[name].discard(uid)
            if not self._opaque[name]:
                del self._opaque[name]
            self._put_node(name)
        if node and uid not in self._opaque.get(node, ()):
            self._opaque.setdefault(node, set()).add(uid)
            self._put_node(node)

    def _put_node(self, name: str) -> None:
        """Put inventory and facts into the snapshot."""
        node = self._nodes.get(name)
        if node is None:
            return
        self._dirty[name] = None
        if node.gpus is None:
            self.snapshot.remove_node(name)
        else:
            gpus = _closed(node.gpus) if self._opaque.get(name) else node.gpus
            self.snapshot.put_node(name, gpus, node.facts(self._used.get(name, {})))


def _closed(gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
    """Return the GPUs with none of them to be given out; present holders keep theirs."""
    return tuple(replace(gpu, healthy=False, health=CLOSED) for gpu in gpus)


def _overlay(state: PodState, flight: Flight) -> PodState:
    """Return a pod whose write is in flight with what it will have, and what it had until that is confirmed."""
    after = replace(state, allocated=flight.allocated, node=flight.node)
    will = after.held
    lost = {uuid: milli for uuid, milli in state.held.items() if milli > will.get(uuid, 0)}
    if not lost:
        return after
    attached = state.attached or Attached(0)
    others = tuple(item for item in attached.draining if item.uuid not in lost)
    leaving = tuple(DrainingShare(uuid, milli) for uuid, milli in lost.items())
    return replace(after, attached=replace(attached, draining=others + leaving))
