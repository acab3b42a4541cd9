"""Pure: the best pair of nodes for a pod that wants GPUs.

A pair counts only if the GPUs, the slot and what a worker pod asks for are there on the GPUs' node, beside the workers
that are promised there, and the slot and what the pod asks for on the pod's; and if the pod tolerates the taints of
both. Of these the one with the most points is the best (`terms`); of equals the one that
adds less fragmentation, then the one whose nodes are one, then the first by name.

Nodes that could give the GPUs are kept in an index for each kind of wish, and examined again only once they change. A
node where other pods wait is examined for each pod, as those before it are served first.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.service import Relation
from jupyter_gpu_scheduler.rules.queue.candidates import acceptable, has_resources, unacceptable
from jupyter_gpu_scheduler.rules.queue.fit_cache import Fit, QueuedFits, could_fit, fits_on, known_fits, wanted
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, DISK, MEMORY, SLOT, ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.taints import tolerated

from .nearest import Nearest, Rated
from .relation import Location, location_of, relate
from .terms import PairPolicy, Terms
from .uplinks import Uplinks

KINDS = 64
"""Kinds of wishes with an index; the least recently used one is dropped for a new one."""
LOCAL = "local"
"""The placement of a wish that only the pod's own node may serve."""


class Pair(NamedTuple):
    """The node of the GPUs, and the node of the pod."""

    gpu_node: str
    pod_node: str
    points: int
    """Billionths. Of a running pod: without those of its own node, which are the same for all pairs."""


class PairChooser:
    """Chooses pairs in one snapshot, and keeps what it has examined."""

    def __init__(self, snapshot: ClusterSnapshot, rules: PairPolicy) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._terms = Terms(rules, {})
        self._indexes: dict[Hashable, _Index] = {}
        self._locations: dict[Location, Location] = {}  # one object for each, as that is compared faster

    def for_running(self, pod: PodState, wish: Wish, without: Collection[str] = ()) -> Pair | None:
        """Return the best other node for all of ``wish``, which is a part of what a running pod wants.

        ``without``: nodes that are no answer. ``None``: no other node can serve it now.
        """
        worker, here = worker_of(pod, wish, self._rules), location_of(self._snapshot, pod.node, self._rules.network)
        found = self._index(worker).nearest.best(here, {pod.node, *without}, self._terms.relation)
        return Pair(found.node, pod.node, -found.cost) if found else None

    def for_new(self, pod: PodState, names: Sequence[str]) -> Pair | None:
        """Return the best pair for a pod without a node; ``names``: the nodes where kube-scheduler would place it.

        ``None``: no pair can serve it now.
        """
        wish = wanted(pod)
        if wish is None or unacceptable(pod):
            return None
        index = self._index(worker_of(pod, wish, self._rules))
        others = () if wish.placement == LOCAL else self._others(pod, names, index)
        found = min((*self._own(pod, names, index.uplinks), *others), default=None)
        return Pair(found.gpu_node, found.pod_node, -found.cost) if found else None

    def serves(self, pod: PodState, names: Sequence[str]) -> bool:
        """Tell whether any of ``names`` can take a pod while another node gives it the GPUs."""
        index = self._index_for_new(pod)
        if index is None or not len(index.nearest):
            return False
        known = self._pod_nodes(pod, names)
        return any(known[name] is not None and index.nearest.has_other(name) for name in names)

    def points(self, pod: PodState, names: Sequence[str]) -> dict[str, int]:
        """Return the billionths of points of those of ``names`` that can take a pod, each with the best other node."""
        index = self._index_for_new(pod)
        if index is None or not len(index.nearest):
            return {}
        return {name: points for name, points, _ in self._beside_all(pod, names, index)}

    def serves_anywhere(self, pod: PodState) -> bool:
        """Tell whether any node can give a pod GPUs by a worker now."""
        index = self._index_for_new(pod)
        return index is not None and len(index.nearest) > 0

    def pairs(self, pod: PodState, names: Sequence[str]) -> Iterator[tuple[str, Pair]]:
        """Yield those of ``names`` that can take a pod, each with the pair of it and the best other node."""
        index = self._index_for_new(pod)
        for name, points, found in self._beside_all(pod, names, index) if index else ():
            yield name, Pair(found.node, name, points)

    def own_points(self, pod: PodState, names: Sequence[str]) -> dict[str, int]:
        """Return the points of those of ``names`` that can take a pod and give it the GPUs."""
        index = self._index_for_new(pod)
        return {one.pod_node: -one.cost for one in self._own(pod, names, index.uplinks)} if index else {}

    def beside(self, pod: PodState, name: str) -> Pair | None:
        """Return the pair of a node, which takes a pod, and the best other one; ``None``: none can serve it now."""
        index = self._index_for_new(pod)
        found = next(self._others(pod, (name,), index), None) if index else None
        return Pair(found.gpu_node, found.pod_node, -found.cost) if found else None

    def relation(self, pair: Pair) -> Relation:
        """Return how near the nodes of a pair are."""
        if pair.gpu_node == pair.pod_node:
            return Relation.NODE
        return relate(*(location_of(self._snapshot, name, self._rules.network) for name in pair[:2]))

    def _index_for_new(self, pod: PodState) -> _Index | None:
        """Return the index for a pod without a node; ``None`` if no other node may give it GPUs."""
        wish = wanted(pod)
        if wish is None or wish.placement == LOCAL or unacceptable(pod):
            return None
        return self._index(worker_of(pod, wish, self._rules))

    def _own(self, pod: PodState, names: Iterable[str], uplinks: Uplinks) -> Iterator[_Candidate]:
        """Yield the nodes that can take the pod and give it the GPUs."""
        snapshot, terms = self._snapshot, Terms(self._rules, pod.asks)
        answers: dict[str, tuple[Fit, Rated]] = snapshot.memo(("own", self._rules, pod.wish, _asks(pod)))
        points = terms.relation(Relation.NODE)
        for name, found, _ in fits_on(snapshot, pod, names):
            if not found.fits or not self._takes(pod, name):
                continue
            known = answers.get(name)
            if known is None or known[0] is not found:  # another fit where other pods are ahead
                known = answers[name] = (found, terms.of_one(snapshot, name, found))
            cost, growth, _ = known[1]
            both = 2 * terms.switch(uplinks.use(location_of(snapshot, name, self._rules.network)))
            yield _Candidate(cost - points - both, growth, False, name, name)

    def _others(self, pod: PodState, names: Sequence[str], index: _Index) -> Iterator[_Candidate]:
        """Yield each node that can take the pod, with the best other node for the GPUs."""
        for name, points, found in self._beside_all(pod, names, index):
            yield _Candidate(-points, found.growth, True, found.node, name)

    def _beside_all(self, pod: PodState, names: Sequence[str], index: _Index) -> Iterator[tuple[str, int, Rated]]:
        """Yield each node that can take the pod, the billionths of points of its best pair, and that other node."""
        terms, answers = Terms(self._rules, pod.asks), self._pod_nodes(pod, names)
        known: dict[Location, tuple[Rated, int] | tuple[None, int]] = {}  # nodes on one switch have the same one
        last: Location | None = None
        best, added = None, 0
        for name in names:
            if (about := answers[name]) is None:
                continue
            location, points = about
            if location is not last:  # most are on the switch of the one before, and a look-up costs more
                if location not in known:
                    known[location] = self._best_at(location, (), index, terms)
                last, (best, added) = location, known[location]
            if best is None:
                continue
            if best.node != name:
                yield name, points + added, best
                continue
            other, beside = self._best_at(location, (name,), index, terms)
            if other:
                yield name, points + beside, other

    def _best_at(
        self, location: Location, without: Collection[str], index: _Index, terms: Terms
    ) -> tuple[Rated, int] | tuple[None, int]:
        """Return the best node for the GPUs of a pod at a location, and the points beside those of the pod's node."""
        found = index.nearest.best(location, without, terms.relation)
        return (found, terms.switch(index.uplinks.use(location)) - found.cost) if found else (None, 0)

    def _pod_nodes(self, pod: PodState, names: Collection[str]) -> Mapping[str, tuple[Location, int] | None]:
        """Return where each node is and its points as the pod's node; ``None`` if it can't take the pod."""
        answers: dict[str, tuple[Location, int] | None] = self._snapshot.memo(("pod", self._rules, _asks(pod)))
        if not all(map(answers.__contains__, names)):  # several times as fast as a loop, and there are thousands
            terms, missing = Terms(self._rules, pod.asks), [name for name in names if name not in answers]
            answers.update((name, self._rate_pod_node(pod, name, terms)) for name in missing)
        return answers

    def _rate_pod_node(self, pod: PodState, name: str, terms: Terms) -> tuple[Location, int] | None:
        if not self._takes(pod, name):
            return None
        location = location_of(self._snapshot, name, self._rules.network)
        return self._locations.setdefault(location, location), terms.of_pod(self._snapshot, name)

    def _takes(self, pod: PodState, name: str) -> bool:
        """Tell whether a node has the slot and what the pod asks for beside GPUs."""
        facts = self._snapshot.facts(name)
        slots = facts.allocatable.get(SLOT, 0) - self._snapshot.slots_taken(name)
        return slots >= pod.slots and acceptable(pod, facts) and has_resources(pod, facts)

    def _index(self, worker: PodState) -> _Index:
        """Return the index for a wish, up to date for this worker."""
        kind = (worker.wish, worker.model_allowances, worker.tolerations)
        index = self._indexes.pop(kind, None)
        if index is None:
            index = _Index(self._snapshot, self._rules)
            if len(self._indexes) >= KINDS:
                del self._indexes[next(iter(self._indexes))]
        self._indexes[kind] = index
        index.update(worker)
        return index


class _Candidate(NamedTuple):
    """A pair that can serve the pod; the least is the best."""

    cost: int
    growth: int
    apart: bool
    gpu_node: str
    pod_node: str


class _Index:
    """The nodes that can give a worker the GPUs of one kind of wish."""

    def __init__(self, snapshot: ClusterSnapshot, rules: PairPolicy) -> None:
        self._snapshot = snapshot
        self._rules = rules
        self._read: int | None = None
        self._forget()

    def _forget(self) -> None:
        self.nearest = Nearest()
        self.uplinks = Uplinks(self._snapshot, self._rules.network)
        self._behind: dict[str, Fit] = {}  # nodes that could serve the wish if no other pod waited there

    def update(self, worker: PodState) -> None:
        """Examine the nodes that changed, and those where others wait."""
        changes = self._snapshot.changes
        changed = None if self._read is None else changes.since(self._read)
        if changed is None:
            self._forget()
            changed = set(self._snapshot.nodes())
        self._read = changes.last
        terms = Terms(self._rules, {})
        if terms.weigh_uplinks:
            for switch in self.uplinks.update(changed):
                self._rate_switch(Location("", *switch), terms)
        for name in changed:
            self._behind.pop(name, None)
            if self._snapshot.gpus(name) is None:
                self.nearest.remove(name)
        known = known_fits(self._snapshot, worker)
        names = [name for name in changed if self._snapshot.gpus(name) is not None]
        for name, found, _ in fits_on(self._snapshot, worker, [*names, *self._behind]):
            if self._behind.get(name) is not found:
                self._examine(name, found, worker, terms)
                if isinstance(known[name], QueuedFits) and could_fit(self._snapshot, worker, name):
                    self._behind[name] = found

    def _examine(self, name: str, found: Fit, worker: PodState, terms: Terms) -> None:
        if found.fits and _takes_worker(self._snapshot, worker, name):
            location = location_of(self._snapshot, name, self._rules.network)
            self._rate_switch(location, terms)
            self.nearest.put(location, terms.of_gpus(self._snapshot, name, found))
        else:
            self.nearest.remove(name)

    def _rate_switch(self, location: Location, terms: Terms) -> None:
        if terms.weigh_uplinks:
            self.nearest.add(location, terms.switch(self.uplinks.use(location)))


def worker_of(pod: PodState, wish: Wish, rules: PairPolicy) -> PodState:
    """Return the worker pod that would serve ``wish`` for ``pod``: it stands in a line where ``pod`` would."""
    assert pod.requested is not None
    return replace(
        pod,
        node="",
        requested=replace(pod.requested, wish=wish),
        attached=None,
        limit=None,
        allowance=None,
        most_here=None,
        notebook=pod.uid,
        slots=1,
        asks=rules.worker,
        selector={},
        blocked=False,
    )


def _takes_worker(snapshot: ClusterSnapshot, worker: PodState, name: str) -> bool:
    """Tell whether a node takes a worker beside those promised there, which kube-scheduler does not know yet."""
    facts, asks = snapshot.facts(name), Counter(worker.asks)
    slots = facts.allocatable.get(SLOT, 0) - snapshot.slots_taken(name)
    for promised in snapshot.nominated(name):
        if promised.notebook:
            asks.update(promised.asks)
            slots -= promised.slots
    if not facts.ready or slots < worker.slots or not tolerated(facts.taints, worker.tolerations):
        return False
    return has_resources(replace(worker, asks=asks), facts)


def _asks(pod: PodState) -> Hashable:
    """Return all that decides which nodes take the pod, and how they are rated, beside GPUs."""
    return (pod.slots, *(pod.asks.get(name, 0) for name in (CPU, MEMORY, DISK)), frozenset(pod.selector.items()))
