"""Pure: the nodes that can take a new pod while another node gives it the GPUs, the best of each location first.

Their points depend on the node and on what the pod asks for, and not on the GPUs' node. So they are kept for all pods
that ask for the same, and a node is rated again only once it changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Hashable
from dataclasses import replace

from jupyter_gpu_scheduler.rules.queue.candidates import acceptable, has_resources
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, DISK, MEMORY, SLOT, ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.taints import tolerated

from .relation import Location, location_of
from .terms import PairPolicy, Terms


class PodNodes:
    """The nodes that can take pods which ask for the same."""

    def __init__(self, snapshot: ClusterSnapshot, rules: PairPolicy) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._read: int | None = None
        self._locations: dict[Location, Location] = {}  # one object for each, as that is compared faster
        self.about: dict[str, tuple[Location, int]] = {}
        """Location and points (in billionths) of each node that can take such a pod."""
        self.by_location: dict[Location, list[tuple[int, str]]] = {}
        """Their points negated, and their names, the best first."""

    def update(self, pod: PodState) -> None:
        """Rate all nodes at first, and then those that changed; ``pod``: any that asks for the same."""
        changes, terms = self._snapshot.changes, Terms(self._rules, pod.asks)
        changed = None if self._read is None else changes.since(self._read)
        self._read = changes.last
        for name in {*self.about, *self._snapshot.nodes()} if changed is None else changed:
            self._remove(name)
            if self._snapshot.gpus(name) is not None and takes(self._snapshot, pod, name):
                self._put(name, terms.of_pod(self._snapshot, name))

    def _put(self, name: str, points: int) -> None:
        found = location_of(self._snapshot, name, self._rules.network)
        location = self._locations.setdefault(found, found)
        self.about[name] = (location, points)
        insort(self.by_location.setdefault(location, []), (-points, name))

    def _remove(self, name: str) -> None:
        if about := self.about.pop(name, None):
            nodes = self.by_location[about[0]]
            del nodes[bisect_left(nodes, (-about[1], name))]
            if not nodes:
                del self.by_location[about[0]]


def takes(snapshot: ClusterSnapshot, pod: PodState, name: str) -> bool:
    """Tell whether a node has the slot and what the pod asks for beside GPUs."""
    facts = snapshot.facts(name)
    slots = facts.allocatable.get(SLOT, 0) - snapshot.slots_taken(name)
    return slots >= pod.slots and acceptable(pod, facts) and has_resources(pod, facts)


def takes_worker(snapshot: ClusterSnapshot, worker: PodState, name: str) -> bool:
    """Tell whether a node takes a worker beside those promised there, which kube-scheduler does not know yet."""
    facts = snapshot.facts(name)
    slots = facts.allocatable.get(SLOT, 0) - snapshot.slots_taken(name)
    promised = [other for other in snapshot.nominated(name) if other.notebook]
    if promised:
        asks = Counter(worker.asks)
        for other in promised:
            asks.update(other.asks)
            slots -= other.slots
        worker = replace(worker, asks=asks)
    if not facts.ready or slots < worker.slots or not tolerated(facts.taints, worker.tolerations):
        return False
    return has_resources(worker, facts)


def asked(pod: PodState) -> Hashable:
    """Return all that decides which nodes take the pod, and how they are rated, beside GPUs."""
    return (pod.slots, *(pod.asks.get(name, 0) for name in (CPU, MEMORY, DISK)), frozenset(pod.selector.items()))
