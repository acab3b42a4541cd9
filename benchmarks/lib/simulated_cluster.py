"""Simulation of a policy on a stream of new pods and later wishes: the cluster's decisions without a cluster."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from jupyter_gpu.model.annotations import Allocated, Attached, Requested, Wish
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.pairs.choose import LOCAL, Pair, PairChooser, worker_of
from jupyter_gpu_scheduler.rules.pairs.terms import PairPolicy
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes, has_resources
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.queue.fit_cache import wanted
from jupyter_gpu_scheduler.rules.scoring.fragmentation import fragmentation
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.scoring.score import best, node_score
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.shape import shape_of
from jupyter_gpu_scheduler.rules.state.snapshot import CPU, ClusterSnapshot, NodeFacts


@dataclass(frozen=True, slots=True)
class Job:
    """A pod that comes, and perhaps goes."""

    pod: PodState
    until: int | None = None
    """Number of the job, counted from 0, before which this one ends; ``None``: it stays."""


@dataclass(frozen=True, slots=True)
class SimulationResult:
    """The result of a simulation; amounts in milli."""

    capacity: int
    """All GPUs of the nodes."""
    arrived: tuple[int, ...]
    """Wished by the first n jobs together, without those that ended."""
    allocated: tuple[int, ...]
    """Allocated when n jobs had come."""
    fragmented: float
    """Free at the end, but of no use for a wish of the policy's mix, as is to be expected."""
    refused: int
    """Number of jobs that found no place."""
    remote: int = 0
    """Number of jobs whose GPUs are on another node than their pod."""

    @property
    def part(self) -> float:
        """Part of the capacity that is allocated at the end, 0 to 1."""
        return self.allocated[-1] / self.capacity if self.capacity and self.allocated else 0.0

    def part_when(self, wished: float) -> float:
        """Return the part of the capacity that was allocated once so much of it was wished for, 0 to 1."""
        reached = zip(self.arrived, self.allocated, strict=True)
        return next((given / self.capacity for asked, given in reached if asked >= wished * self.capacity), self.part)


def replay(
    snapshot: ClusterSnapshot,
    jobs: Iterable[Job],
    names: Sequence[str],
    policy: Policy,
    pairs: PairPolicy | None = None,
) -> SimulationResult:
    """Bring the jobs one after the other onto the best node that has room; a job that finds none is refused.

    ``pairs``: GPUs may be on another node, where a worker pod holds them. The snapshot is changed: it holds the pods
    that are there at the end. Their CPU, memory and disk are counted too.
    """
    placer = _Placer(snapshot, names, policy, pairs)
    arrived: list[int] = []
    allocated: list[int] = []
    leaving: dict[int, list[tuple[PodState, ...]]] = {}
    wished = given = refused = remote = 0
    for number, job in enumerate(jobs):
        for pods in leaving.pop(number, ()):
            wished -= _wished(pods[0])
            given -= _given(pods[0])
            for pod in pods:
                _end(snapshot, pod)
        placed = placer.place(job.pod)
        refused += placed[0].pending
        remote += len(placed) > 1
        wished += _wished(job.pod)
        given += _given(placed[0])
        if job.until is not None:
            leaving.setdefault(job.until, []).append(placed)
        arrived.append(wished)
        allocated.append(given)
    shapes = {name: shape_of(snapshot, name) or () for name in names}
    return SimulationResult(
        capacity=sum(MILLI_PER_GPU * len(shape) for shape in shapes.values()),
        arrived=tuple(arrived),
        allocated=tuple(allocated),
        fragmented=sum(
            fragmentation(policy, shape, _left(snapshot.facts(name))) for name, shape in shapes.items() if shape
        ),
        refused=refused,
        remote=remote,
    )


def at_once(
    snapshot: ClusterSnapshot, pods: Iterable[PodState], wishes: Iterable[Wish], names: Sequence[str], policy: Policy
) -> int:
    """Count the pods that, started as they are one after the other, have all of their later wish as soon as it comes.

    ``wishes`` come when all have started, in the order of the pods. No pod gives anything back.
    """
    placer = _Placer(snapshot, names, policy)
    started = [placer.place(pod)[0] for pod in pods]
    return sum(_resized(snapshot, pod, wish) for pod, wish in zip(started, wishes, strict=True))


def _resized(snapshot: ClusterSnapshot, pod: PodState, wish: Wish) -> bool:
    """Apply a wish; return whether the pod has all of it at once. The rest waits."""
    if pod.pending:
        return False
    generation = pod.requested.generation if pod.requested else 0
    snapshot.put_pod(replace(pod, requested=Requested(generation + 1, wish)))
    for decision in decide(snapshot, pod.node):
        state = snapshot.pod(decision.uid)
        assert state
        given = decision.allocated
        snapshot.put_pod(replace(state, allocated=given, attached=Attached(0, given.shares)))
    after = snapshot.pod(pod.uid)
    assert after
    assert after.allocated
    return total(after.allocated.shares) == wish.milli


class _Placer:
    """Places pods on nodes; with ``pairs`` their GPUs may be on another node, where a worker pod holds them."""

    def __init__(
        self, snapshot: ClusterSnapshot, names: Sequence[str], policy: Policy, pairs: PairPolicy | None = None
    ) -> None:
        self._snapshot = snapshot
        self._names = names
        self._all = frozenset(names)
        self._policy = policy
        self._pairs = pairs
        self._chooser = PairChooser(snapshot, pairs) if pairs else None
        self._rated: dict[Hashable, _RatedNodes] = {}

    def place(self, pod: PodState) -> tuple[PodState, ...]:
        """Return the pod where it is placed now, and its worker, if any; the pod is still pending where none can."""
        if self._chooser and wanted(pod):
            pair = self._chooser.for_new(pod, self._pod_nodes(pod, self._chooser))
            if pair is None:
                return (pod,)
            if pair.gpu_node != pair.pod_node:
                return self._apart(pod, pair)
            return (_put(self._snapshot, pod, pair.pod_node),)
        names, _ = self._nodes_for(pod).best(lambda names: self._scores(pod, names))
        node = best(self._snapshot, pod, names, self._policy)
        return (pod if node is None else _put(self._snapshot, pod, node),)

    def _pod_nodes(self, pod: PodState, chooser: PairChooser) -> Sequence[str]:
        """Return all nodes for the pod of which the best pair can have one."""
        assert pod.wish
        if pod.wish.placement == LOCAL:
            return self._names
        own, points = self._nodes_for(pod).best(lambda names: chooser.own_points(pod, names))
        beside, most = chooser.best_beside(pod, self._all, 1), 1
        if not beside or chooser.points(pod, beside)[beside[0]] < points:
            return own
        while len(beside) == most and len(set(chooser.points(pod, (beside[0], beside[-1])).values())) == 1:
            most *= 2
            beside = chooser.best_beside(pod, self._all, most)
        return [*own, *(name for name in beside if name not in own)]

    def _nodes_for(self, pod: PodState) -> _RatedNodes:
        kind = (pod.wish, pod.slots, pod.owner, frozenset(pod.asks.items()), frozenset(pod.selector.items()))
        return self._rated.setdefault(kind, _RatedNodes(self._snapshot, self._names))

    def _scores(self, pod: PodState, names: Iterable[str]) -> Mapping[str, float]:
        """Return the scores of those nodes that have room for a pod."""
        able = [name for name in names if has_resources(pod, self._snapshot.facts(name))]
        fitting = filter_nodes(self._snapshot, pod, able).fitting
        return {name: node_score(self._snapshot, pod, name, self._policy) for name in fitting}

    def _apart(self, pod: PodState, pair: Pair) -> tuple[PodState, PodState]:
        """Place a pod on one node, and on another the worker with its GPUs: the pod itself will want no more."""
        assert self._pairs
        assert pod.wish
        worker = replace(worker_of(pod, pod.wish, self._pairs), uid=f"{pod.uid}-worker")
        held = _put(self._snapshot, worker, pair.gpu_node)
        _note(self._snapshot, replace(pod, node=pair.pod_node, requested=None, limit=0))
        return replace(pod, node=pair.pod_node), held


class _RatedNodes:
    """Ratings of nodes for pods of one kind; a node is rated again only once it changed."""

    def __init__(self, snapshot: ClusterSnapshot, names: Iterable[str]) -> None:
        self._snapshot = snapshot
        self._names = frozenset(names)
        self._read: int | None = None
        self._worth: dict[str, float] = {}

    def best(self, rate: Callable[[Sequence[str]], Mapping[str, float]]) -> tuple[list[str], float]:
        """Return the best nodes, which are equal, and what they are worth; ``rate``: rates those with room for a pod.

        What a node is worth may depend on that node and on the kind of pods alone, so no pod may wait anywhere.
        """
        changes = self._snapshot.changes
        changed = None if self._read is None else changes.since(self._read)
        names = self._names if changed is None else changed & self._names
        self._read = changes.last
        for name in names:
            self._worth.pop(name, None)
        self._worth.update(rate(sorted(names)))
        most = max(self._worth.values(), default=-math.inf)
        return [name for name, worth in self._worth.items() if worth == most], most


def _put(snapshot: ClusterSnapshot, pod: PodState, node: str) -> PodState:
    """Place a pod on a node that has room for it, with its GPUs."""
    granted = allocate(snapshot, pod, node)
    assert isinstance(granted, Allocated), f"{node} fits {pod.uid}, but gives nothing"
    placed = replace(pod, node=node, allocated=granted, attached=Attached(0, granted.shares))
    _note(snapshot, placed)
    return placed


def _note(snapshot: ClusterSnapshot, pod: PodState) -> None:
    snapshot.put_pod(pod)
    _count(snapshot, pod, 1)


def _end(snapshot: ClusterSnapshot, pod: PodState) -> None:
    if not pod.pending:
        snapshot.remove_pod(pod.uid)
        _count(snapshot, pod, -1)


def _count(snapshot: ClusterSnapshot, pod: PodState, sign: int) -> None:
    """Count what a pod uses of its node besides GPUs."""
    facts = snapshot.facts(pod.node)
    used = {**facts.used, **{name: facts.used.get(name, 0) + sign * asked for name, asked in pod.asks.items()}}
    snapshot.put_node(pod.node, snapshot.gpus(pod.node) or (), replace(facts, used=used))


def _wished(pod: PodState) -> int:
    return pod.requested.milli if pod.requested else 0


def _given(pod: PodState) -> int:
    return _wished(pod) if not pod.pending else 0


def _left(facts: NodeFacts) -> int | None:
    return facts.allocatable[CPU] - facts.used.get(CPU, 0) if CPU in facts.allocatable else None
