"""Pure: which part of a running notebook's wish its own node serves, and which parts other nodes serve.

The own node comes first. A set (`sets`) that it can't serve goes whole to one other node, and then the rest of what it
can't serve, as one part if possible: to nodes that have a worker of the notebook, then to the best other node. Parts
stay where they are, but for these steps, in this order:

* The notebook wishes less: parts are given back, GPUs that stopped working first, then what rests before what works,
  and of each kind the other nodes' before the own node's, the newest first. A set stays. Beside it, of parts that
  programs have open as many stay as the notebook wishes for themselves.
* A part that no program has opened comes home once the own node can serve it.
* A set goes where it can be served now; so does what the own node owes, and a part that its node can't serve.

What no node can serve now waits in the own node's line alone: a pod in two lines would be served twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.gpu import GpuShare, total
from jupyter_gpu.model.service import WorkerPart
from jupyter_gpu.model.use_class import UseClass, use_class
from jupyter_gpu_scheduler.rules.placement.models import ModelAllowances
from jupyter_gpu_scheduler.rules.queue.fit_cache import fit_on, known_fits
from jupyter_gpu_scheduler.rules.queue.queue_pass import QueuePass
from jupyter_gpu_scheduler.rules.state.permitted import with_amount
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import OwnerStanding

from .amounts import most_here, movable
from .choose import LOCAL, PairChooser
from .permits import LimitsOf, Permits, bound_of, keeping, oldest, permits_by_kind
from .sets import alone, has_set, kept, left, set_of
from .terms import PairPolicy
from .workers import own_part

_LAST = OwnerStanding(10**12)
_BROKEN = -1
"""The use of a GPU that stopped working, when parts are given back: before `UseClass.CLOSED`."""


class Worker(NamedTuple):
    """One worker of a notebook."""

    part: WorkerPart
    pod: PodState
    """Its pod in the snapshot; before that is there, the promise of it."""
    there: bool = False
    """Whether its pod is there, and goes on."""
    failed: bool = False
    """Whether its pod could not run on its node."""


class Step(NamedTuple):
    """A step in dividing a wish."""

    parts: tuple[WorkerPart, ...]
    last: bool = False
    """Whether no other follows from it, which need not be looked for: all that was owed is on its first other node."""


class Splitter:
    """Divides wishes of running notebooks in one snapshot."""

    def __init__(
        self, snapshot: ClusterSnapshot, rules: PairPolicy, most: int, limits_of: LimitsOf = lambda _: None
    ) -> None:
        self._snapshot = snapshot
        self._limits_of = limits_of
        self.chooser = PairChooser(snapshot, rules)
        """The choice of other nodes, which the questions about new pods share."""
        self._most = most  # workers of a notebook

    def next_parts(self, notebook: PodState, wish: Wish, workers: Sequence[Worker], used: Collection[str] = ()) -> Step:
        """Return the next step, with the parts after it; the same parts if there is none.

        ``notebook`` is in the snapshot, and wishes what is left of ``wish`` for its own node. ``used``: ids of workers
        whose pods may still be there. Call this again once the snapshot has the parts: it comes to rest.
        """
        parts, wish = tuple(worker.part for worker in workers), alone(wish)
        lost = self._given_back(notebook, wish, workers)
        if lost:
            return Step(_changed(parts, {uid: -milli for uid, milli in lost.items()}))
        if not may_be_split(wish):
            return Step(parts)
        shares = _shares(self._snapshot, notebook)
        if self.is_early(notebook):
            return Step(parts)
        has, asked = total(shares), (notebook.permitted or wish).milli
        if has < set_of(wish) and not has_set(parts, wish):
            stays = kept(wish, notebook.has)
            there = self._permits(notebook, wish, _had(notebook, stays), set_of(wish), same=asked - stays)
            if found := self._with_set(notebook, wish, workers, there, used):
                return Step(found)
        rest = wish.milli - sum(part.milli for part in parts)
        owed = max(0, min(asked, rest) - has)
        there = self._permits(notebook, wish, shares, rest - self._once_closed(notebook, workers, has), same=owed)
        amounts = {milli for most in there.amounts() for milli in movable(wish, most) if milli}
        found = self._placed(notebook, wish, workers, sorted(amounts, reverse=True), "", used, lambda _: there)
        if found or owed:
            plain = not (parts or set_of(wish) or self._limits_of(notebook.owner))
            last = plain and notebook.has <= has and sum(part.milli for part in found or ()) == owed
            return Step(found or parts, last)
        if home := self._comes_home(notebook, wish, workers):
            return Step(_changed(parts, home))
        for worker in workers:
            moved = _may_leave(worker, parts, wish, self._unserved(worker))

            def without(milli: int, worker: Worker = worker) -> Permits:
                left = _closed_but(worker, worker.part.milli - milli)
                return self._permits(notebook, wish, shares, milli, same=milli, worker=left)

            if moved and (found := self._placed(notebook, wish, workers, moved, worker.part.id, used, without)):
                return Step(found)
        return Step(parts)

    def _permits(
        self,
        notebook: PodState,
        wish: Wish,
        keeps: tuple[GpuShare, ...],
        milli: int,
        *,
        same: int,
        worker: PodState | None = None,
    ) -> Permits:
        """Return what limits permit on other nodes of ``milli``, while the notebook ``keeps`` these shares on its own.

        ``same``: what they permit where they permit the same on all nodes; ``worker``: a worker as it would be.
        """
        limits = self._limits_of(notebook.owner)
        if limits is None:
            return Permits(same, notebook.model_allowances)
        changed = (keeping(notebook, keeps), *((worker,) if worker else ()))
        return permits_by_kind(self._snapshot, limits, notebook, with_amount(wish, max(0, milli)), changed)

    def _once_closed(self, notebook: PodState, workers: Sequence[Worker], has: int) -> int:
        """Return the milli that the own node serves once workers have closed what they gave back; ``has``: now.

        Only then limits permit the notebook what came home.
        """
        closing = [worker for worker in workers if worker.pod.holds > worker.part.milli and self._is_up(worker)]
        if not closing or self._limits_of(notebook.owner) is None:
            return has
        then = self._permitted_beside(notebook, [_closed_but(worker, worker.part.milli) for worker in closing])
        return max(has, granted(self._snapshot, then))

    def _permitted_beside(self, notebook: PodState, changed: Sequence[PodState]) -> PodState:
        """Return a notebook under the terms that it has if pods of its owner are as ``changed``; limits count kinds."""
        limits, instead = self._limits_of(notebook.owner), {pod.uid: pod for pod in changed}
        assert limits
        pods = (instead.get(pod.uid, pod) for pod in self._snapshot.owned(notebook.owner))
        bound = bound_of(self._snapshot, limits, notebook, pods)
        return replace(notebook, allowance=bound.allowance, model_allowances=tuple(sorted(bound.models)))

    def is_early(self, notebook: PodState) -> bool:
        """Tell whether the own node must be decided first: where limits count kinds, it matters which GPUs it gives."""
        return bool(self._limits_of(notebook.owner)) and granted(self._snapshot, notebook) > notebook.has

    def waits(self, notebook: PodState, workers: Sequence[Worker]) -> bool:
        """Tell whether another node could be of use, once it has room."""
        wish = notebook.permitted
        if notebook.requested and self._limits_of(notebook.owner):
            wish = notebook.wanted  # other nodes may be permitted more
        return bool(wish and wish.milli > granted(self._snapshot, notebook)) or any(map(self._unserved, workers))

    def _given_back(self, notebook: PodState, wish: Wish, workers: Sequence[Worker]) -> Counter[str]:
        """Return the milli that each part loses, by id, as the notebook wishes less, or other shares."""
        if not may_be_split(wish):
            return +Counter({worker.part.id: worker.part.milli for worker in workers})
        each = wish.each or 1
        lost = Counter({worker.part.id: worker.part.milli % each for worker in workers})
        away = sum(worker.part.milli for worker in workers) - lost.total()
        if not away or away + notebook.has <= wish.milli:
            return +lost
        here = self._kept_here(notebook, wish)
        keeper = _keeper(workers, wish, here.total())
        excess = away + here.total() - (wish.milli if keeper else max(wish.milli, set_of(wish)))
        beside = excess - keeper.part.milli if keeper else excess  # what is too much if the set counts for nothing else
        uses = {worker.part.id: _by_use(worker, self._broken(worker.part.node)) for worker in workers}
        for use in (_BROKEN, *UseClass):
            for worker in _newest_first(workers):
                stays = lost[worker.part.id] + (set_of(wish) if worker is keeper else 0)
                most = excess if worker is keeper or use <= UseClass.CLOSED else min(excess, beside)
                left = max(0, min(uses[worker.part.id][use], worker.part.milli - stays, most))
                left -= left % each
                lost[worker.part.id] += left
                excess -= left
                beside -= 0 if worker is keeper else left
            excess -= 0 if keeper else here[use]
        return +lost

    def _broken(self, node: str) -> Collection[str]:
        """Return the GPUs of a node that do not work."""
        return {gpu.uuid for gpu in self._snapshot.gpus(node) or () if not gpu.healthy}

    def _kept_here(self, notebook: PodState, wish: Wish) -> Counter[int]:
        """Return the milli by use of those shares of the own node that serve the wish, though it wish less than all."""
        had = Counter({share.uuid: share.milli for share in notebook.allocated.shares} if notebook.allocated else {})
        most = _wishing(self._snapshot, notebook, wish, max(wish.milli, notebook.has), notebook.has)
        shares = _shares(self._snapshot, most)
        kept = (share._replace(milli=min(share.milli, had[share.uuid])) for share in shares)
        return _uses(kept, notebook, self._broken(notebook.node))

    def _comes_home(self, notebook: PodState, wish: Wish, workers: Sequence[Worker]) -> dict[str, int] | None:
        parts, asked = tuple(worker.part for worker in workers), notebook.requested
        assert asked is not None
        for worker in _newest_first(workers):
            for amount in _may_leave(worker, parts, wish, _by_use(worker)[UseClass.CLOSED]):
                change = {worker.part.id: -amount}
                after = _changed(parts, change)
                beside = left(wish, after, notebook.has)
                there = replace(notebook, requested=replace(asked, wish=wish))
                there = on_own_node(self._snapshot, there, after, anywhere=True)
                if self._limits_of(notebook.owner) is None:
                    there = _allowed_more(there, amount)
                else:
                    there = self._permitted_beside(there, (_closed_but(worker, worker.part.milli - amount),))
                if notebook.pod_limit:  # in a fair line it has no standing yet: it must be served as the last
                    there = replace(there, standing=_LAST)
                enough = beside.here if has_set(parts, wish) else beside.rest
                if granted(self._snapshot, there) >= enough and self._gains(notebook, there, amount):
                    return change
        return None

    def _gains(self, notebook: PodState, there: PodState, milli: int) -> bool:
        """Tell whether the own node serves so much more with GPUs that work, not with a broken one to be given back."""
        broken = self._broken(notebook.node)
        if not broken:
            return True
        now, then = (
            sum(share.milli for share in _shares(self._snapshot, pod) if share.uuid not in broken)
            for pod in (notebook, there)
        )
        return then - now >= milli

    def _with_set(
        self, notebook: PodState, wish: Wish, workers: Sequence[Worker], permits: Permits, used: Collection[str]
    ) -> tuple[WorkerPart, ...] | None:
        """Return the parts with the set on another node that serves all of it now."""
        parts, size = tuple(worker.part for worker in workers), set_of(wish)
        for worker in workers:
            more = size - worker.part.milli
            if self._serves(worker, wish, more, permits):
                return _changed(parts, {worker.part.id: more})
        new = self._new_part(notebook, wish, parts, size, used, permits)
        return (*parts, *new) if new else None

    def _placed(
        self,
        notebook: PodState,
        wish: Wish,
        workers: Sequence[Worker],
        amounts: Iterable[int],
        source: str,
        used: Collection[str],
        permits: Callable[[int], Permits],
    ) -> tuple[WorkerPart, ...] | None:
        """Return the parts with the first of ``amounts`` that another node serves now; ``source``: the part left.

        ``permits``: what limits permit if so much leaves the source.
        """
        parts = tuple(worker.part for worker in workers)
        others = [worker for worker in workers if worker.part.id != source]
        for amount in amounts:
            for worker in others:
                if self._serves(worker, wish, amount, permits(amount)):
                    return _changed(parts, Counter({worker.part.id: amount, source: -amount}))
        for amount in amounts:
            if new := self._new_part(notebook, wish, parts, amount, used, permits(amount)):
                return (*_changed(parts, {source: -amount}), *new)
        return None

    def _new_part(
        self,
        notebook: PodState,
        wish: Wish,
        parts: Sequence[WorkerPart],
        milli: int,
        used: Collection[str],
        permits: Permits,
    ) -> tuple[WorkerPart, ...]:
        """Return a part of so much on the best other node without a worker that serves it now; empty: there is none."""
        if len(parts) >= self._most or milli > max(permits.amounts(), default=0):
            return ()
        nodes = {*permits.too_little(milli), *(part.node for part in parts)}
        asking = replace(notebook, model_allowances=permits.models)
        pair = self.chooser.for_running(asking, with_amount(wish, milli), nodes)
        if pair is None:
            return ()
        name = _next_id({*used, *(part.id for part in parts)})
        return (WorkerPart(name, pair.gpu_node, milli, self.chooser.relation(pair)),)

    def _serves(self, worker: Worker, wish: Wish, more: int, permits: Permits) -> bool:
        """Tell whether a worker's node serves so much more now."""
        pod, node, milli = worker.pod, worker.part.node, worker.part.milli + more
        if worker.failed or not self._is_up(worker) or permits.on(node) < more:
            return False
        asking = _wishing(self._snapshot, pod, wish, milli, None)
        if pod.model_allowances:
            asking = replace(asking, model_allowances=_with_more(pod.model_allowances, permits.models))
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


def on_own_node(snapshot: ClusterSnapshot, pod: PodState, parts: Sequence[WorkerPart], *, anywhere: bool) -> PodState:
    """Return a notebook that wishes what ``parts`` leave of its wish, and what of that its own node is to serve.

    ``anywhere``: other nodes may serve the rest; otherwise it wishes no more than for its own.
    """
    found = own_part(pod, parts)
    if not pod.requested or not found.requested or not (anywhere or pod.requested.wish.set):
        return found
    most, wish = most_here(snapshot, found), alone(pod.requested.wish)
    if wish.set and pod.node:
        able, beside = found.requested.milli if most is None else most, left(wish, parts, pod.has)
        here = beside.here if able >= set_of(wish) else beside.rest
        most = here if here < able else most
        if not anywhere:
            return replace(found, requested=replace(found.requested, wish=with_amount(wish, here)))
    return replace(found, most_here=most if anywhere else None)


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
    found = replace(_allowed_more(pod, more), requested=replace(pod.requested, wish=with_amount(wish, milli)))
    return replace(found, most_here=most_here(snapshot, found))


def _closed_but(worker: Worker, milli: int) -> PodState:
    """Return a worker's pod once it has closed all but so much."""
    return keeping(worker.pod, _had(worker.pod, milli), milli)


def _had(pod: PodState, milli: int) -> tuple[GpuShare, ...]:
    """Return the oldest shares of a pod that have so many milli together."""
    return oldest(pod.allocated.shares if pod.allocated and pod.has else (), milli)


def _with_more(models: ModelAllowances, more: ModelAllowances) -> ModelAllowances:
    """Return the allowances for models with what is permitted beside them."""
    added = dict(more)
    return tuple((word, milli + added.get(word, 0)) for word, milli in models)


def _allowed_more(pod: PodState, more: int | None) -> PodState:
    allowance = None if more is None or pod.allowance is None else pod.allowance + more
    return replace(pod, allowance=allowance)


def _keeper(workers: Sequence[Worker], wish: Wish, here: int) -> Worker | None:
    """Return the worker that goes on to serve the set: of several the one with most in use, then the oldest.

    ``None``: none serves it, or the own node does, which has so much ``here``.
    """
    size = set_of(wish)
    if here >= size:
        return None
    able = [worker for worker in workers if worker.part.milli >= size]
    return max(able, key=lambda worker: (-_by_use(worker)[UseClass.CLOSED], -_number(worker.part.id)), default=None)


def _may_leave(worker: Worker, parts: Sequence[WorkerPart], wish: Wish, milli: int) -> tuple[int, ...]:
    """Return the amounts that may leave a worker so that its node has ``milli`` less to serve, the most first.

    A set leaves whole, with all that is beside it, and only while no program has opened any of it.
    """
    others = [part for part in parts if part.id != worker.part.id]
    if not has_set([worker.part], wish) or has_set(others, wish):
        return movable(wish, milli)
    more = worker.part.milli - set_of(wish)
    whole = milli > more and _by_use(worker)[UseClass.CLOSED] == worker.part.milli
    return (*((worker.part.milli,) if whole else ()), *movable(wish, min(milli, more)))


def _by_use(worker: Worker, broken: Collection[str] = ()) -> Counter[int]:
    """Return the milli of a part by the use of them; what its pod does not have yet is closed.

    ``broken``: GPUs that count as `_BROKEN`, whether or not they are open.
    """
    pod = worker.pod
    found = _uses(pod.allocated.shares if pod.allocated and pod.has else (), pod, broken)
    leaving = max(0, found.total() - worker.part.milli)  # the pod gives back what is broken first
    found[_BROKEN] = max(0, found[_BROKEN] - leaving)
    open_milli = min(worker.part.milli - found[_BROKEN], found[UseClass.RESTING] + found[UseClass.WORKING])
    found[UseClass.CLOSED] = worker.part.milli - found[_BROKEN] - open_milli
    return found


def _uses(shares: Iterable[GpuShare], pod: PodState, broken: Collection[str] = ()) -> Counter[int]:
    found: Counter[int] = Counter()
    for share in shares:
        found[_BROKEN if share.uuid in broken else use_class(share.uuid, pod.busy, pod.resting)] += share.milli
    return found


def _newest_first(workers: Sequence[Worker]) -> list[Worker]:
    return sorted(workers, key=lambda worker: -_number(worker.part.id))


def _number(worker: str) -> int:
    return int(worker.removeprefix("w"))


def _next_id(used: Collection[str]) -> str:
    return f"w{max(map(_number, used), default=0) + 1}"


def _changed(parts: Sequence[WorkerPart], more: dict[str, int]) -> tuple[WorkerPart, ...]:
    return tuple(replace(part, milli=part.milli + more.get(part.id, 0)) for part in parts)
