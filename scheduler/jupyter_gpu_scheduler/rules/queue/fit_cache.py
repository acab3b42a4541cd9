"""Whether nodes can serve pending pods, computed once for equal wishes and equal nodes.

If the node's GPUs rule the wish out, nothing more is computed. If they allow it and other pods wait, the answer also
depends on how many of them are ahead of the pod. What depends on the node alone is computed once for all wishes; what
depends on the wish and the GPUs alone, once for all nodes whose GPUs have one pattern.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import refuse
from jupyter_gpu_scheduler.rules.placement import shortage
from jupyter_gpu_scheduler.rules.placement.models import ModelAllowances, within_models
from jupyter_gpu_scheduler.rules.placement.placement import Spot, arrange
from jupyter_gpu_scheduler.rules.state.line import Rank
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.shape import Grant, Pattern, Shape, gpus_of, pattern, shape_of
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot

from .queue_pass import trial


@dataclass(frozen=True, slots=True, eq=False)
class Fit:
    """Whether a node can serve a wish now, and with which shares."""

    shape: Shape = ()
    """The node's GPUs in the order to which ``grants`` refers: not always its own."""
    grants: tuple[Grant, ...] = ()
    """Shares that the pod would get."""
    owed: int = 0
    """Milli that the pod lacks."""
    why: str = ""
    """Reason why the wish can't be served now; empty: it fits."""
    never: bool = False
    """Whether that stays so, whatever comes free."""
    fits: bool = True
    """Whether all of the wish can be had now."""


@dataclass(frozen=True, slots=True)
class _NodeState:
    """The conditions on a node that are the same for every new pod."""

    pattern: Pattern | None
    """``None``: its GPUs are not known."""
    ranks: tuple[Rank, ...]
    """Ranks of the pods that wait there."""
    left: int
    """Slots that are left."""
    why: str
    """Reason why there are no more slots."""


@dataclass(frozen=True, slots=True)
class QueuedFits:
    """The ranks of the pods that wait on a node, and the fits computed there, by the number of pods ahead.

    In a fair line, by the owner's standing too: pods ahead are served in steps, and some may come after the pod.
    """

    ranks: tuple[Rank, ...]
    fits: dict[Hashable, Fit]

    def ahead(self, pod: PodState) -> int:
        """Return how many pods come before ``pod``."""
        return bisect_left(self.ranks, pod.rank)


KnownFits = dict[str, Fit | QueuedFits]
"""Fits by node; one for all pods where no pod waits."""


def known_fits(snapshot: ClusterSnapshot, pod: PodState) -> KnownFits:
    """Return the fits that are known for a wish like that of ``pod``, for `fit_on`."""
    wish = wanted(pod)
    found: KnownFits = snapshot.memo(("fit", wish, pod.slots, _needs_gpus(pod, wish), pod.model_allowances))
    return found


def fit_on(snapshot: ClusterSnapshot, pod: PodState, node: str, known: KnownFits) -> tuple[Fit, int]:
    """Return how ``pod`` fits on ``node``, and how many pods are ahead of it; ``known`` is `known_fits` of the pod.

    The pod's limit and selector are ignored: they are the same for all nodes.
    """
    return next((found, ahead) for _, found, ahead in _fits_on(snapshot, pod, (node,), known))


def fits_on(snapshot: ClusterSnapshot, pod: PodState, nodes: Iterable[str]) -> Iterator[tuple[str, Fit, int]]:
    """Yield the name of each node, how ``pod`` fits there, and how many pods are ahead of it."""
    return _fits_on(snapshot, pod, nodes, known_fits(snapshot, pod))


def _fits_on(
    snapshot: ClusterSnapshot, pod: PodState, nodes: Iterable[str], known: KnownFits
) -> Iterator[tuple[str, Fit, int]]:
    wish, standing = wanted(pod), (pod.owner, pod.rank[:3]) if pod.standing else None
    seen: dict[Pattern, Fit] = {}
    for node in nodes:
        found = known.get(node)
        if found is None:
            there = _node_state(snapshot, node)
            found = known[node] = QueuedFits(there.ranks, {}) if there.ranks else _without_queue(there, wish, pod, seen)
        if found.__class__ is Fit:  # faster than isinstance, and there are thousands
            yield node, found, 0
        else:
            assert isinstance(found, QueuedFits)
            ahead = found.ahead(pod)
            key = (ahead, standing) if standing else ahead
            if key not in found.fits:
                found.fits[key] = _behind_queue(snapshot, pod, node, seen)
            yield node, found.fits[key], ahead


def could_fit(snapshot: ClusterSnapshot, pod: PodState, node: str) -> bool:
    """Tell whether ``pod`` would fit on ``node`` if no other pod waited there."""
    return _without_queue(_node_state(snapshot, node), wanted(pod), pod, {}).fits


def exact_fit(snapshot: ClusterSnapshot, pod: PodState, node: str) -> tuple[Fit, int]:
    """Return the fit on one node, with the grants in the node's own order of GPUs, and how many pods are ahead."""
    known, wish = known_fits(snapshot, pod), wanted(pod)
    found, ahead = fit_on(snapshot, pod, node, known)
    shape = shape_of(snapshot, node)
    if found.fits and wish and shape and isinstance(known[node], Fit):  # a cached one has the order of its pattern
        found = _fit_of_shape(wish, shape, pod.model_allowances)
    return found, ahead


def _node_state(snapshot: ClusterSnapshot, node: str) -> _NodeState:
    answers: dict[str, _NodeState] = snapshot.memo("node state")
    found = answers.get(node)
    if found is None:
        shape = shape_of(snapshot, node)
        left, why = _slots(snapshot, node)
        found = answers[node] = _NodeState(
            None if shape is None else pattern(shape), _waiting_ranks(snapshot, node), left, why
        )
    return found


def _slots(snapshot: ClusterSnapshot, node: str) -> tuple[int, str]:
    """Return how many slots a node has left for new pods, and why no more; -1: it takes none."""
    facts = snapshot.facts(node)
    slots, taken = facts.allocatable.get(SLOT, 0), snapshot.slots_taken(node)
    if not facts.schedulable:
        return -1, "the node takes no new pods"
    if not slots:
        return -1, f"the node offers no {SLOT}: the node plugin does not run there"
    return slots - taken, f"no {SLOT} is left ({taken} of {slots} taken)"


def waiting_ranks(snapshot: ClusterSnapshot, node: str) -> tuple[Rank, ...]:
    """Return the ranks of the pods that wait on ``node`` or may wait at its next decision, in line order."""
    return _node_state(snapshot, node).ranks


def has_room(snapshot: ClusterSnapshot, pod: PodState) -> bool:
    """Tell whether ``pod`` could start now on the node that it is nominated to."""
    return not pod.blocked and fit_on(snapshot, pod, pod.nominated, known_fits(snapshot, pod))[0].fits


def _waiting_ranks(snapshot: ClusterSnapshot, node: str) -> tuple[Rank, ...]:
    answers: dict[str, frozenset[str]] = snapshot.gpu_memo("uuids")
    there = answers.get(node)
    if there is None:
        there = answers[node] = frozenset(gpu.uuid for gpu in snapshot.gpus(node) or ())

    def may_wait(pod: PodState) -> bool:
        if pod.waits:
            return True
        if pod.allocated is None or pod.requested is None or pod.pending or pod.gone:
            return False
        return any(share.uuid not in there for share in pod.allocated.shares)  # some are lost

    pods = (*snapshot.pods(node), *snapshot.nominated(node))
    return tuple(sorted(pod.rank for pod in pods if may_wait(pod)))


def _needs_gpus(pod: PodState, wish: Wish | None) -> bool:
    """Tell whether a node without any GPU can never take the pod, which wants none now but could never have one there.

    A pod that gets none only because of its allowance, or may have GPUs of other nodes, may go to any node; those with
    GPUs get a better score.
    """
    return wish is None and bool(pod.slots) and not pod.anywhere and not pod.cut


def _without_queue(there: _NodeState, wish: Wish | None, pod: PodState, seen: dict[Pattern, Fit]) -> Fit:
    """Return the fit on a node where no pod waits; ``seen`` are the fits on other nodes, by pattern."""
    if there.pattern is None:
        return Fit(why="the GPUs of the node are not known: no node plugin has reported them", fits=False)
    found = seen.get(there.pattern)
    if found is None:
        found = seen[there.pattern] = _fit_of_pattern(wish, there.pattern, _needs_gpus(pod, wish), pod.model_allowances)
    return found if found.never or there.left >= pod.slots else _without_slot(found, there.why)


def _behind_queue(snapshot: ClusterSnapshot, pod: PodState, node: str, seen: dict[Pattern, Fit]) -> Fit:
    """Return the fit on a node where other pods wait: they leave less room, never more."""
    wish, there = wanted(pod), _node_state(snapshot, node)
    found = _without_queue(there, wish, pod, seen)
    if wish is None or not found.fits:
        return found
    shape = shape_of(snapshot, node) or ()
    got = trial(snapshot, pod, node)
    indexes = {gpu.uuid: index for index, gpu in enumerate(snapshot.gpus(node) or ())}
    grants = tuple((indexes[share.uuid], share.milli) for share in got.shares)
    return Fit(shape, grants, got.owed, shortage.now(wish, shape) if got.owed else "", fits=not got.owed)


def _without_slot(found: Fit, why: str) -> Fit:
    return Fit(found.shape, found.grants, found.owed, why, fits=False)


def wanted(pod: PodState) -> Wish | None:
    """Return the GPUs that a new pod starts with, as a wish; ``None``: none, as its user or its allowance says."""
    wish = pod.wish
    return wish if wish and wish.milli else None


@lru_cache(maxsize=32768)
def _fit_of_pattern(wish: Wish | None, known: Pattern, needs_gpus: bool, models: ModelAllowances) -> Fit:
    if wish is not None:
        return _fit_of_shape(wish, known.shape, models)
    if needs_gpus and not known.shape:
        return Fit(why=shortage.NO_GPU, never=True, fits=False)
    return Fit(known.shape)


def _fit_of_shape(wish: Wish, shape: Shape, models: ModelAllowances) -> Fit:
    gpus = gpus_of(shape)
    if refuse(wish, limit=None, gpus=gpus):
        return Fit(shape, owed=wish.milli, why=shortage.never(wish, gpus), never=True, fits=False)
    spots = [
        Spot(gpu, there.free, memory_room=there.free_memory, priority=there.priority)
        for gpu, there in zip(gpus, shape, strict=True)
    ]
    if models:
        part, spots = within_models(wish, spots, models)
        if part != wish:
            return Fit(shape, owed=wish.milli, why=shortage.LIMITED, never=True, fits=False)
    found = arrange(wish, spots)
    grants = tuple((int(share.uuid), share.milli) for share in found.shares)
    return Fit(shape, grants, found.owed, shortage.now(wish, shape) if found.owed else "", fits=not found.owed)
