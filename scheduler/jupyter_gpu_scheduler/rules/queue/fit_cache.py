"""Verdicts on pending pods and nodes: computed once for equal questions and equal nodes.

If the node's GPUs rule the wish out, nothing more is computed. If they allow it and other pods wait, the answer also
depends on how many of them come before the pod. Facts of the node alone are computed once for all questions; those of
the wish and the GPUs alone, once for all nodes whose GPUs are of one pattern.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu_scheduler.rules.placement import shortage
from jupyter_gpu_scheduler.rules.placement.feasible import refuse
from jupyter_gpu_scheduler.rules.placement.placement import Spot, arrange
from jupyter_gpu_scheduler.rules.state.line import Rank
from jupyter_gpu_scheduler.rules.state.shape import Grant, Pattern, Shape, gpus_of, pattern, shape_of
from jupyter_gpu_scheduler.rules.state.snapshot import SLOT, ClusterSnapshot, PodState

from .queue_pass import prospect


@dataclass(frozen=True, slots=True, eq=False)
class Verdict:
    """The answer to whether a node can serve a wish now."""

    shape: Shape = ()
    """The node's GPUs in the order that ``grants`` mean: not always its own."""
    grants: tuple[Grant, ...] = ()
    """Shares that the pod would get."""
    owed: int = 0
    """Milli that it lacks."""
    why: str = ""
    """Description of what is missing; empty: it fits."""
    never: bool = False
    """Whether that stays so, whatever comes free."""
    fits: bool = True
    """Whether all of the wish can be had now."""


@dataclass(frozen=True, slots=True)
class _Place:
    """The conditions that every new pod finds on a node."""

    pattern: Pattern | None
    """``None``: its GPUs are not known."""
    ranks: tuple[Rank, ...]
    """Ranks of the pods that wait there."""
    left: int
    """Slots."""
    why: str
    """Reason why it has no slot."""


@dataclass(frozen=True, slots=True)
class Standing:
    """The ranks of pods that wait on a node, and the answers already given there by the number of pods ahead."""

    ranks: tuple[Rank, ...]
    by_place: dict[int, Verdict]

    def place(self, pod: PodState) -> int:
        """Return how many come before ``pod``."""
        return bisect_left(self.ranks, pod.rank)


Known = dict[str, Verdict | Standing]
"""Answers by node; one for all pods where no pod waits."""


def standings(snapshot: ClusterSnapshot, pod: PodState) -> Known:
    """Return the answers that nodes have given to a wish like that of ``pod``, for `verdict`."""
    found: Known = snapshot.memo(("verdict", wanted(pod), pod.slots))
    return found


def verdict(snapshot: ClusterSnapshot, pod: PodState, node: str, known: Known) -> tuple[Verdict, int]:
    """Return the verdict for ``pod`` on ``node``, and the pod's place there; ``known`` is `standings` of the pod.

    The pod's limit and selector are ignored: they are the same for all nodes.
    """
    return next((found, place) for _, found, place in _verdicts(snapshot, pod, (node,), known))


def verdicts(snapshot: ClusterSnapshot, pod: PodState, nodes: Iterable[str]) -> Iterator[tuple[str, Verdict, int]]:
    """Yield the name, verdict and place for each of many nodes."""
    return _verdicts(snapshot, pod, nodes, standings(snapshot, pod))


def _verdicts(
    snapshot: ClusterSnapshot, pod: PodState, nodes: Iterable[str], known: Known
) -> Iterator[tuple[str, Verdict, int]]:
    wish = wanted(pod)
    seen: dict[Pattern, Verdict] = {}
    for node in nodes:
        found = known.get(node)
        if found is None:
            there = _place(snapshot, node)
            found = known[node] = Standing(there.ranks, {}) if there.ranks else _calm(there, wish, pod.slots, seen)
        if found.__class__ is Verdict:  # faster than isinstance, and there are thousands
            yield node, found, 0
        else:
            assert isinstance(found, Standing)
            place = found.place(pod)
            if place not in found.by_place:
                found.by_place[place] = _queued(snapshot, pod, node, seen)
            yield node, found.by_place[place], place


def exact(snapshot: ClusterSnapshot, pod: PodState, node: str) -> tuple[Verdict, int]:
    """Return the verdict and place on one node, with the granted GPUs in the node's own order."""
    known, wish = standings(snapshot, pod), wanted(pod)
    found, place = verdict(snapshot, pod, node, known)
    shape = shape_of(snapshot, node)
    calm = isinstance(known[node], Verdict)
    return (_of_shape(wish, shape) if calm and found.fits and wish and shape else found), place


def _place(snapshot: ClusterSnapshot, node: str) -> _Place:
    answers: dict[str, _Place] = snapshot.memo("place")
    found = answers.get(node)
    if found is None:
        shape = shape_of(snapshot, node)
        left, why = _slots(snapshot, node)
        found = answers[node] = _Place(None if shape is None else pattern(shape), _rivals(snapshot, node), left, why)
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


def has_room(snapshot: ClusterSnapshot, pod: PodState) -> bool:
    """Tell whether ``pod`` could start now on the node that it is nominated to."""
    return not pod.blocked and verdict(snapshot, pod, pod.nominated, standings(snapshot, pod))[0].fits


def _rivals(snapshot: ClusterSnapshot, node: str) -> tuple[Rank, ...]:
    """Return the ranks of the pods that wait on ``node`` or may wait at its next decision, in line order."""
    there = {gpu.uuid for gpu in snapshot.gpus(node) or ()}

    def may_wait(pod: PodState) -> bool:
        lost = pod.allocated and not pod.pending and any(share.uuid not in there for share in pod.allocated.shares)
        return pod.waits or bool(lost and pod.requested and not pod.gone)

    pods = (*snapshot.pods(node), *snapshot.nominated(node))
    return tuple(sorted(pod.rank for pod in pods if may_wait(pod)))


def _calm(there: _Place, wish: Wish | None, slots: int, seen: dict[Pattern, Verdict]) -> Verdict:
    """Answer for a node with no waiting pods; ``seen`` are the answers for other nodes."""
    if there.pattern is None:
        return Verdict(why="the GPUs of the node are not known: no node plugin has reported them", fits=False)
    found = seen.get(there.pattern)
    if found is None:
        found = seen[there.pattern] = _of_pattern(wish, there.pattern, bool(slots))
    return found if found.never or there.left >= slots else _without_slot(found, there.why)


def _queued(snapshot: ClusterSnapshot, pod: PodState, node: str, seen: dict[Pattern, Verdict]) -> Verdict:
    """Answer for a node where other pods wait: they leave less room, never more."""
    wish, there = wanted(pod), _place(snapshot, node)
    found = _calm(there, wish, pod.slots, seen)
    if wish is None or not found.fits:
        return found
    shape = shape_of(snapshot, node) or ()
    got = prospect(snapshot, pod, node)
    places = {gpu.uuid: place for place, gpu in enumerate(snapshot.gpus(node) or ())}
    grants = tuple((places[share.uuid], share.milli) for share in got.shares)
    return Verdict(shape, grants, got.owed, shortage.now(wish, shape) if got.owed else "", fits=not got.owed)


def _without_slot(found: Verdict, why: str) -> Verdict:
    return Verdict(found.shape, found.grants, found.owed, why, fits=False)


def wanted(pod: PodState) -> Wish | None:
    """Return the GPUs that a new pod starts with, as a wish; ``None``: none."""
    wish = pod.requested.wish if pod.requested else None
    return wish if wish and wish.milli else None


@lru_cache(maxsize=32768)
def _of_pattern(wish: Wish | None, known: Pattern, slot: bool) -> Verdict:
    if wish is not None:
        return _of_shape(wish, known.shape)
    if slot and not known.shape:  # a pod with a slot there could never have anything
        return Verdict(why=shortage.NO_GPU, never=True, fits=False)
    return Verdict(known.shape)


def _of_shape(wish: Wish, shape: Shape) -> Verdict:
    gpus = gpus_of(shape)
    if refuse(wish, limit=None, gpus=gpus):
        return Verdict(shape, owed=wish.milli, why=shortage.never(wish, gpus), never=True, fits=False)
    found = arrange(wish, [Spot(gpu, shape[gpu.index].free) for gpu in gpus])
    grants = tuple((int(share.uuid), share.milli) for share in found.shares)
    return Verdict(shape, grants, found.owed, shortage.now(wish, shape) if found.owed else "", fits=not found.owed)
