"""Pure: the best pair of nodes for a pod that wants GPUs.

A pair counts only if the GPUs, the slot and what a worker pod asks for are there on the GPUs' node, beside the workers
that are promised there, and the slot and what the pod asks for on the pod's; and if the pod tolerates the taints of
both. Of these the one with the most points is the best (`terms`); of equals the one that
adds less fragmentation, then the one whose nodes are one, then the first by name.

Nodes that could give the GPUs are kept in an index for each kind of wish, and examined again only once they change. A
node where other pods wait is examined for each pod, as those before it are served first.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import replace
from heapq import heapify, heappop, heapreplace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.service import Relation
from jupyter_gpu_scheduler.rules.queue.candidates import unacceptable
from jupyter_gpu_scheduler.rules.queue.fit_cache import Fit, QueuedFits, could_fit, fits_on, known_fits, wanted
from jupyter_gpu_scheduler.rules.state.line import Rank
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.shape import free_of
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .expected import ExpectedElsewhere
from .nearest import Nearest, Rated
from .pod_nodes import PodNodes, asked, takes, takes_worker
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
        self._indexes: dict[Hashable, _Index] = {}
        self._pod_nodes: dict[Hashable, PodNodes] = {}
        self._expected: dict[Hashable, ExpectedElsewhere] = {}
        self._asked: tuple[PodState, PodState] | None = None  # the new pod that was asked for last, and its worker

    def for_running(self, pod: PodState, wish: Wish, without: Collection[str] = ()) -> Pair | None:
        """Return the best other node for all of ``wish``, which is a part of what a running pod wants.

        ``without``: nodes that are no answer. ``None``: no other node can serve it now.
        """
        worker, here = worker_of(pod, wish, self._rules), location_of(self._snapshot, pod.node, self._rules.network)
        others = {pod.node, *without}
        found = self._index(worker, others).nearest.best(here, others)
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
        known = self._nodes_for(pod).about
        return any(name in known and index.nearest.has_other(name) for name in names)

    def points(self, pod: PodState, names: Sequence[str]) -> dict[str, int]:
        """Return the billionths of points of those of ``names`` that can take a pod, each with the best other node."""
        index = self._index_for_new(pod)
        if index is None or not len(index.nearest):
            return {}
        return {name: points for name, points, _ in self._beside_all(pod, names, index)}

    def best_beside(self, pod: PodState, names: Collection[str], most: int) -> list[str]:
        """Return the best of ``names`` that can take a pod, each with the best other node, but no more than ``most``.

        The first has the most points (`points`), and of equals the first name. Asks no more than the best of each
        location, and those before them that are none of ``names``.
        """
        index = self._index_for_new(pod)
        if index is None or not len(index.nearest):
            return []
        known = self._nodes_for(pod)
        heads: list[tuple[int, str, int]] = []  # of each stream what is next, and its number
        streams: list[Iterator[tuple[int, str]]] = []
        for location, found in index.nearest.best_of_each(known.by_location):
            nodes, added = known.by_location[location], index.added(location)
            beside = added - found.cost
            heads.append((nodes[0][0] - beside, "", len(streams)))  # no node there costs less
            streams.append(_ordered(nodes, names, found.node, beside))
            if found.node in names and (about := known.about.get(found.node)) and about[0] == location:
                other, beside = index.beside(location, found.node)
                if other:
                    heads.append((-about[1] - beside, found.node, len(streams)))
                    streams.append(iter(()))
        return _merged(heads, streams, most)

    def givers(self, pod: PodState) -> int:
        """Return how many nodes can give a pod all of its GPUs by a worker now."""
        index = self._index_for_new(pod)
        return len(index.nearest) if index else 0

    def pairs(self, pod: PodState, names: Sequence[str]) -> Iterator[tuple[str, Pair]]:
        """Yield those of ``names`` that can take a pod, each with the pair of it and the best other node."""
        index = self._index_for_new(pod)
        for name, points, found in self._beside_all(pod, names, index) if index else ():
            yield name, Pair(found.node, name, points)

    def own_points(self, pod: PodState, names: Sequence[str]) -> dict[str, int]:
        """Return the points of those of ``names`` that can take a pod and give it the GPUs."""
        index = self._index_for_new(pod)
        return {one.pod_node: -one.cost for one in self._own(pod, names, index.uplinks)} if index else {}

    def network(self, pod: PodState, names: Sequence[str]) -> dict[str, int]:
        """Return the points that the network gives to each of ``names`` as a place with its own GPUs; empty: none."""
        terms = Terms(self._rules, pod.asks)
        index = self._index_for_new(pod) if terms.weigh_network else None
        if index is None:
            return {}
        network = self._rules.network
        uses = {name: index.uplinks.use(location_of(self._snapshot, name, network)) for name in names}
        return {name: terms.network(self._snapshot, name, use) for name, use in uses.items()}

    def beside(self, pod: PodState, name: str) -> Pair | None:
        """Return the pair of a node, which takes a pod, and the best other one; ``None``: none can serve it now."""
        index = self._index_for_new(pod)
        found = next(self._others(pod, (name,), index), None) if index else None
        return Pair(found.gpu_node, found.pod_node, -found.cost) if found else None

    def expected(self, pod: PodState) -> ExpectedElsewhere:
        """Return what pods like this one, which wants no GPU yet, can expect of other nodes."""
        sought = pod.wish
        kind = (sought and (sought.memory, sought.model, sought.vendor), pod.tolerations)
        found = self._expected.pop(kind, None) or ExpectedElsewhere(self._snapshot, self._rules, sought)
        if len(self._expected) >= KINDS:
            del self._expected[next(iter(self._expected))]
        self._expected[kind] = found
        found.update(pod)
        return found

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
        if self._asked is None or self._asked[0] is not pod:  # one pod is asked for several times in turn
            self._asked = pod, worker_of(pod, wish, self._rules)
        return self._index(self._asked[1])

    def _own(self, pod: PodState, names: Iterable[str], uplinks: Uplinks) -> Iterator[_Candidate]:
        """Yield the nodes that can take the pod and give it the GPUs."""
        snapshot, terms = self._snapshot, Terms(self._rules, pod.asks)
        answers: dict[str, tuple[Fit, Rated]] = snapshot.memo(("own", self._rules, pod.wish, asked(pod)))
        points = terms.relation(Relation.NODE)
        for name, found, _ in fits_on(snapshot, pod, names):
            if not found.fits or not takes(snapshot, pod, name):
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
        known = self._nodes_for(pod).about
        last: Location | None = None
        best, added = None, 0
        for name in names:
            if (about := known.get(name)) is None:
                continue
            location, points = about
            if location is not last:  # most are on the switch of the one before, and a look-up costs more
                last, (best, added) = location, index.beside(location)
            if best is None:
                continue
            if best.node != name:
                yield name, points + added, best
                continue
            other, beside = index.beside(location, name)
            if other:
                yield name, points + beside, other

    def _nodes_for(self, pod: PodState) -> PodNodes:
        """Return the nodes that can take a pod."""
        kind = asked(pod)
        found = self._pod_nodes.pop(kind, None) or PodNodes(self._snapshot, self._rules)
        if len(self._pod_nodes) >= KINDS:
            del self._pod_nodes[next(iter(self._pod_nodes))]
        self._pod_nodes[kind] = found
        found.update(pod)
        return found

    def _index(self, worker: PodState, without: Collection[str] = ()) -> _Index:
        """Return the index for a wish, up to date for this worker, but for the nodes ``without``."""
        kind = (worker.wish, worker.model_allowances, worker.tolerations)
        index = self._indexes.pop(kind, None)
        if index is None:
            index = _Index(self._snapshot, self._rules)
            if len(self._indexes) >= KINDS:
                del self._indexes[next(iter(self._indexes))]
        self._indexes[kind] = index
        index.update(worker, without)
        return index


_Beside = tuple[Rated, int] | tuple[None, int]


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
        self._later: set[str] = set()  # nodes that changed before, and are still to be examined
        self._last: PodState | None = None  # for whom the index is up to date
        self._terms = Terms(rules, {})
        self._forget()

    def _forget(self) -> None:
        self.nearest = Nearest(self._terms.relation)
        self.uplinks = Uplinks(self._snapshot, self._rules.network)
        self._behind: dict[str, Fit] = {}  # nodes that could serve the wish if no other pod waited there
        self._last_rank: Rank | None = None  # no pod that waits on any of these comes after it
        self._was_last = False  # whether all of them came before the pod for whom the index is up to date

    def beside(self, location: Location, without: str = "") -> _Beside:
        """Return the best node but one for the GPUs of a pod at a location, and the points beside the pod node's."""
        best = self.nearest.best(location, (without,) if without else ())
        if best is None:
            return None, 0
        return best, self.added(location) - best.cost

    def added(self, location: Location) -> int:
        """Return what the switch of the pod's node adds to the points."""
        return self._terms.switch(self.uplinks.use(location)) if self._terms.weigh_uplinks else 0

    def update(self, worker: PodState, without: Collection[str]) -> None:
        """Examine the nodes that changed, and those where others wait.

        Those ``without`` are examined by a later question: the pod's own node changes before and after its question.
        """
        changes = self._snapshot.changes
        changed = None if self._read is None else changes.since(self._read)
        if changed is None:
            self._forget()
            changed = set(self._snapshot.nodes())
        if self._terms.weigh_uplinks:
            for switch in self.uplinks.update(changed):
                self._rate_switch(Location("", *switch))
        self._read = changes.last
        changed |= self._later
        self._later = changed.intersection(without)
        changed -= self._later
        if not changed and (worker is self._last or worker == self._last):
            return  # one pod is asked for several times in turn
        self._last = worker
        for name in changed:
            self._behind.pop(name, None)
        names = list(self._with_room(changed, worker))
        for name in changed.difference(names):
            self.nearest.remove(name)
        known = known_fits(self._snapshot, worker)
        same = self._was_last and self._is_last(worker)  # so it gets there what the one before would have got
        for name, found, _ in fits_on(self._snapshot, worker, names if same else [*names, *self._behind]):
            if self._behind.get(name) is not found:
                self._examine(name, found, worker)
                there = known[name]
                if isinstance(there, QueuedFits) and could_fit(self._snapshot, worker, name):
                    self._behind[name] = found
                    self._last_rank = max(self._last_rank or there.ranks[-1], there.ranks[-1])
        self._was_last = self._is_last(worker)

    def _with_room(self, names: Iterable[str], worker: PodState) -> Iterator[str]:
        """Yield the nodes with a GPU that has room for each large share: no other can serve the wish, whoever waits."""
        wish = wanted(worker)
        pieces = wish.pieces if wish else (0,)
        large = pieces[0]
        count = pieces.count(large) if large else 0
        for name in names:
            if self._snapshot.gpus(name) is not None:
                free = free_of(self._snapshot, name)
                if sum(milli >= large for milli in free) >= count:
                    yield name

    def _is_last(self, worker: PodState) -> bool:
        """Tell whether a pod comes after all that wait; never known in a fair line."""
        return not worker.standing and (self._last_rank is None or worker.rank > self._last_rank)

    def _examine(self, name: str, found: Fit, worker: PodState) -> None:
        if found.fits and takes_worker(self._snapshot, worker, name):
            location = location_of(self._snapshot, name, self._rules.network)
            self._rate_switch(location)
            self.nearest.put(location, self._terms.of_gpus(self._snapshot, name, found))
        else:
            self.nearest.remove(name)

    def _rate_switch(self, location: Location) -> None:
        if self._terms.weigh_uplinks:
            self.nearest.add(location, self._terms.switch(self.uplinks.use(location)))


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


def _ordered(
    nodes: Iterable[tuple[int, str]], names: Collection[str], without: str, points: int
) -> Iterator[tuple[int, str]]:
    """Yield costs and names of those ``nodes`` that are among ``names``, but for one, with so many points more."""
    for cost, name in nodes:
        if name in names and name != without:
            yield cost - points, name


def _merged(heads: list[tuple[int, str, int]], streams: Sequence[Iterator[tuple[int, str]]], most: int) -> list[str]:
    """Return the names of the least of all streams, but no more than ``most``.

    ``heads``: of each stream either its first, which it then yields no more, or a cost that is not above that one's,
    without a name. So what is beyond ``most`` is not asked for.
    """
    heapify(heads)
    found: list[str] = []
    while heads and len(found) < most:
        _, name, number = heads[0]
        if name:
            found.append(name)
        following = next(streams[number], None)
        if following:
            heapreplace(heads, (*following, number))
        else:
            heappop(heads)
    return found
