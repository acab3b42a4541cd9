"""Pure: which part of a running notebook's wish its own node serves, and which parts other nodes serve.

The own node comes first. What it can't serve goes to nodes that have a worker of the notebook, then to the best other
node, as one part if possible. Parts stay where they are, but for these steps, in this order:

* The notebook wishes less: parts are given back, those that rest before those that work, and of each kind the other
  nodes' before the own node's, the newest first.
* A part that no program has opened comes home once the own node can serve it.
* What the own node owes, and a part that its node can't serve, goes where it can be served now.

What no node can serve now waits in the own node's line alone: a pod in two lines would be served twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import refuse
from jupyter_gpu.model.gpu import GpuShare, total
from jupyter_gpu.model.service import WorkerPart
from jupyter_gpu.model.use_class import UseClass, use_class
from jupyter_gpu_scheduler.rules.queue.fit_cache import fit_on, known_fits
from jupyter_gpu_scheduler.rules.queue.queue_pass import QueuePass
from jupyter_gpu_scheduler.rules.state.permitted import with_amount
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding

from .choose import LOCAL, PairChooser
from .relation import location_of, relate
from .terms import PairPolicy

_LAST = OwnerStanding(10**12)


class Worker(NamedTuple):
    """One worker of a notebook."""

    part: WorkerPart
    pod: PodState
    """Its pod in the snapshot; before that is there, the promise of it."""
    there: bool = False
    """Whether its pod is there, and goes on."""
    failed: bool = False
    """Whether its pod could not run on its node."""


class Splitter:
    """Divides wishes of running notebooks in one snapshot."""

    def __init__(self, snapshot: ClusterSnapshot, rules: PairPolicy, most: int) -> None:
        self._snapshot = snapshot
        self._network = rules.network
        self._chooser = PairChooser(snapshot, rules)
        self._most = most  # workers of a notebook

    def next_parts(
        self, notebook: PodState, wish: Wish, workers: Sequence[Worker], used: Collection[str] = ()
    ) -> tuple[WorkerPart, ...]:
        """Return the parts after the next step; the same if there is none.

        ``notebook`` is in the snapshot, and wishes what is left of ``wish`` for its own node. ``used``: ids of workers
        whose pods may still be there. Call this again once the snapshot has the parts: it comes to rest.
        """
        parts = tuple(worker.part for worker in workers)
        lost = self._given_back(notebook, wish, workers)
        if lost:
            return _changed(parts, {uid: -milli for uid, milli in lost.items()})
        if not may_be_split(wish):
            return parts
        has = granted(self._snapshot, notebook)
        owed = max(0, (notebook.permitted or wish).milli - has)
        if not owed and (home := self._comes_home(notebook, wish, workers)):
            return _changed(parts, home)
        if owed:
            return self._placed(notebook, wish, workers, owed, "", used) or parts
        for worker in workers:
            unserved = self._unserved(worker)
            found = unserved and self._placed(notebook, wish, workers, unserved, worker.part.id, used)
            if found:
                return found
        return parts

    def waits(self, notebook: PodState, workers: Sequence[Worker]) -> bool:
        """Tell whether another node could be of use, once it has room."""
        wish = notebook.permitted
        return bool(wish and wish.milli > granted(self._snapshot, notebook)) or any(map(self._unserved, workers))

    def _given_back(self, notebook: PodState, wish: Wish, workers: Sequence[Worker]) -> Counter[str]:
        """Return the milli that each part loses, by id, as the notebook wishes less, or other shares."""
        if not may_be_split(wish):
            return +Counter({worker.part.id: worker.part.milli for worker in workers})
        size = wish.each or 1
        lost = Counter({worker.part.id: worker.part.milli % size for worker in workers})
        away = sum(worker.part.milli for worker in workers) - lost.total()
        here = self._kept_here(notebook, wish) if away else Counter[UseClass]()
        excess = away + here.total() - wish.milli
        for use in UseClass:
            for worker in _newest_first(workers):
                left = min(_by_use(worker)[use], worker.part.milli - lost[worker.part.id], excess)
                left = max(0, left - left % size)
                lost[worker.part.id] += left
                excess -= left
            excess -= here[use]
        return +lost

    def _kept_here(self, notebook: PodState, wish: Wish) -> Counter[UseClass]:
        """Return the milli by use of those shares of the own node that serve the wish, though it wish less than all."""
        had = {share.uuid for share in notebook.allocated.shares} if notebook.allocated else set()
        most = _wishing(self._snapshot, notebook, wish, max(wish.milli, notebook.has), notebook.has)
        shares = (share for share in _shares(self._snapshot, most) if share.uuid in had)
        return _uses(shares, notebook)

    def _comes_home(self, notebook: PodState, wish: Wish, workers: Sequence[Worker]) -> dict[str, int] | None:
        own = notebook.requested.milli if notebook.requested else 0
        for worker in _newest_first(workers):
            for amount in _movable(wish, _by_use(worker)[UseClass.CLOSED]):
                there = _wishing(self._snapshot, notebook, wish, own + amount, amount)
                if notebook.pod_limit:  # in a fair line it has no standing yet: it must be served as the last
                    there = replace(there, standing=_LAST)
                if granted(self._snapshot, there) >= own + amount:
                    return {worker.part.id: -amount}
        return None

    def _placed(
        self, notebook: PodState, wish: Wish, workers: Sequence[Worker], milli: int, source: str, used: Collection[str]
    ) -> tuple[WorkerPart, ...] | None:
        """Return the parts with as much of ``milli`` elsewhere as one node serves now; ``source``: a part it is of."""
        parts = tuple(worker.part for worker in workers)
        others = [worker for worker in workers if worker.part.id != source]
        amounts = _movable(wish, milli)
        for amount in amounts:
            for worker in others:
                if self._serves(worker, wish, amount):
                    return _changed(parts, Counter({worker.part.id: amount, source: -amount}))
        if len(workers) >= self._most:
            return None
        nodes = {worker.part.node for worker in workers}
        for amount in amounts:
            pair = self._chooser.for_running(notebook, with_amount(wish, amount), nodes)
            if pair:
                here, there = (
                    location_of(self._snapshot, name, self._network) for name in (notebook.node, pair.gpu_node)
                )
                new = WorkerPart(
                    _next_id({*used, *(part.id for part in parts)}), pair.gpu_node, amount, relate(here, there)
                )
                return (*_changed(parts, {source: -amount}), new)
        return None

    def _serves(self, worker: Worker, wish: Wish, more: int) -> bool:
        """Tell whether a worker's node serves so much more now."""
        pod, node, milli = worker.pod, worker.part.node, worker.part.milli + more
        if worker.failed or not self._is_up(worker):
            return False
        asking = _wishing(self._snapshot, pod, wish, milli, None)
        if pod.node:
            return granted(self._snapshot, asking) >= milli
        return fit_on(self._snapshot, asking, node, known_fits(self._snapshot, asking))[0].fits

    def _is_up(self, worker: Worker) -> bool:
        facts = self._snapshot.facts(worker.part.node)
        return self._snapshot.gpus(worker.part.node) is not None and (worker.there or facts.ready)

    def _unserved(self, worker: Worker) -> int:
        """Return the milli of a part that its node can't serve now, and that no program has opened."""
        pod, closed = worker.pod, _by_use(worker)[UseClass.CLOSED]
        if not worker.part.milli or pod.fault:
            return 0
        if not self._is_up(worker) or (worker.failed and not pod.node):
            return closed
        if pod.node:
            return min(closed, max(0, worker.part.milli - pod.has)) if pod.ticket is not None else 0
        found, _ = fit_on(self._snapshot, pod, worker.part.node, known_fits(self._snapshot, pod))
        return 0 if found.fits else closed


def may_be_split(wish: Wish) -> bool:
    """Tell whether other nodes may serve parts of a wish."""
    return wish.placement != LOCAL


def most_here(snapshot: ClusterSnapshot, pod: PodState) -> int | None:
    """Return the most of a pod's wish that its node could ever serve; ``None``: all, or nothing at all."""
    if pod.requested is None or not pod.node or pod.fault:
        return None
    wish = pod.requested.wish
    answers: dict[str, int | None] = snapshot.gpu_memo(("most here", wish, pod.lacks))
    if pod.node not in answers:
        gpus = tuple(gpu for gpu in snapshot.gpus(pod.node) or () if gpu.uuid not in pod.lacks)
        able = (
            milli for milli in _amounts(wish, wish.milli) if not refuse(with_amount(wish, milli), limit=None, gpus=gpus)
        )
        most = next(able, None)
        answers[pod.node] = None if most == wish.milli else most
    return answers[pod.node]


def granted(snapshot: ClusterSnapshot, pod: PodState) -> int:
    """Return the milli that a running pod has once its node is decided, were it as it is given here."""
    return total(_shares(snapshot, pod))


def _shares(snapshot: ClusterSnapshot, pod: PodState) -> tuple[GpuShare, ...]:
    gpus = snapshot.gpus(pod.node)
    if gpus is None:
        return pod.allocated.shares if pod.allocated and pod.has else ()
    others = (other for other in (*snapshot.pods(pod.node), *snapshot.nominated(pod.node)) if other.uid != pod.uid)
    queue_pass = QueuePass(snapshot, pod.node, gpus, (*others, pod))
    queue_pass.serve()
    return queue_pass.shares[pod.uid]


def _wishing(snapshot: ClusterSnapshot, pod: PodState, wish: Wish, milli: int, more: int | None) -> PodState:
    """Return a pod that wishes so much, and may have ``more`` than now; ``None``: as much as it wishes."""
    assert pod.requested is not None
    allowance = None if more is None or pod.allowance is None else pod.allowance + more
    found = replace(pod, requested=replace(pod.requested, wish=with_amount(wish, milli)), allowance=allowance)
    return replace(found, most_here=most_here(snapshot, found))


def _by_use(worker: Worker) -> Counter[UseClass]:
    """Return the milli of a part by the use of them; what its pod does not have yet is closed."""
    pod = worker.pod
    found = _uses(pod.allocated.shares if pod.allocated and pod.has else (), pod)
    open_milli = min(worker.part.milli, found.total() - found[UseClass.CLOSED])
    found[UseClass.CLOSED] = worker.part.milli - open_milli
    return found


def _uses(shares: Iterable[GpuShare], pod: PodState) -> Counter[UseClass]:
    found: Counter[UseClass] = Counter()
    for share in shares:
        found[use_class(share.uuid, pod.busy, pod.resting)] += share.milli
    return found


def _amounts(wish: Wish, milli: int) -> Iterator[int]:
    """Yield ``milli``, then one share of the wish less, and so on."""
    pieces = with_amount(wish, milli).pieces
    yield from reversed(tuple(accumulate(pieces)))


def _movable(wish: Wish, milli: int) -> tuple[int, ...]:
    """Return the amounts that may go to another node, the most first; what needs one island or switch moves whole."""
    if wish.topology in ("island", "switch"):
        return (milli,) if milli == wish.milli else ()
    return tuple(_amounts(wish, milli))


def _newest_first(workers: Sequence[Worker]) -> list[Worker]:
    return sorted(workers, key=lambda worker: -_number(worker.part.id))


def _number(worker: str) -> int:
    return int(worker.removeprefix("w"))


def _next_id(used: Collection[str]) -> str:
    return f"w{max(map(_number, used), default=0) + 1}"


def _changed(parts: Sequence[WorkerPart], more: dict[str, int]) -> tuple[WorkerPart, ...]:
    return tuple(replace(part, milli=part.milli + more.get(part.id, 0)) for part in parts)
