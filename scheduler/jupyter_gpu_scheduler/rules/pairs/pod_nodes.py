"""Pure: the nodes that can take a new pod while another node gives it the GPUs, the best of each location first.

Their points depend on the node and on what the pod asks for, and not on the GPUs' node. So they are kept for all pods
that ask for the same, and a node is rated again only once it changes.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Collection, Hashable, Iterable, Sequence

from jupyter_gpu_scheduler.rules.queue.candidates import acceptable, has_resources
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, DISK, MEMORY, SLOT, ClusterSnapshot

from .relation import Location, location_of
from .terms import PairPolicy, Terms


class PodNodes:
    """The nodes that can take pods which ask for the same."""

    def __init__(self, snapshot: ClusterSnapshot, rules: PairPolicy) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._read: int | None = None
        self._locations: dict[Location, Location] = {}  # one object for each, as that is compared faster
        self.about: dict[str, tuple[Location, int] | None] = {}
        """Location and points (in billionths) of each node that was asked for; ``None``: it cannot take such a pod."""
        self._order: dict[Location, list[tuple[int, str]]] = {}  # negated points and names

    def by_location(self) -> Iterable[tuple[Location, Sequence[tuple[int, str]]]]:
        """Return the nodes of each location that can take the pod, with their points negated: the best first."""
        return self._order.items()

    def update(self, pod: PodState, names: Collection[str]) -> None:
        """Rate those of ``names`` that are new here, and all that changed; ``pod``: any that asks for the same."""
        changes, terms = self._snapshot.changes, Terms(self._rules, pod.asks)
        changed = None if self._read is None else changes.since(self._read)
        self._read = changes.last
        for name in tuple(self.about) if changed is None else changed & self.about.keys():
            self._remove(name)
        if not all(map(self.about.__contains__, names)):  # several times as fast as a loop, and there are thousands
            for name in names:
                if name not in self.about:
                    self._put(pod, name, terms)

    def _put(self, pod: PodState, name: str, terms: Terms) -> None:
        if not takes(self._snapshot, pod, name):
            self.about[name] = None
            return
        found = location_of(self._snapshot, name, self._rules.network)
        location, points = self._locations.setdefault(found, found), terms.of_pod(self._snapshot, name)
        self.about[name] = (location, points)
        insort(self._order.setdefault(location, []), (-points, name))

    def _remove(self, name: str) -> None:
        if about := self.about.pop(name):
            nodes = self._order[about[0]]
            del nodes[bisect_left(nodes, (-about[1], name))]
            if not nodes:
                del self._order[about[0]]


def takes(snapshot: ClusterSnapshot, pod: PodState, name: str) -> bool:
    """Tell whether a node has the slot and what the pod asks for beside GPUs."""
    facts = snapshot.facts(name)
    slots = facts.allocatable.get(SLOT, 0) - snapshot.slots_taken(name)
    return slots >= pod.slots and acceptable(pod, facts) and has_resources(pod, facts)


def asked(pod: PodState) -> Hashable:
    """Return all that decides which nodes take the pod, and how they are rated, beside GPUs."""
    return (pod.slots, *(pod.asks.get(name, 0) for name in (CPU, MEMORY, DISK)), frozenset(pod.selector.items()))
