"""How a pending pod fares on a node now: computed once for equal questions and equal nodes.

What the node's shape does not allow is not asked further. Where it allows the wish and others wait, the answer
depends on how many of them come before the pod, too.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import lru_cache

from jupyter_gpu.model.annotations import Wish

from . import shortage
from .desk import prospect
from .limits import refuse
from .placement import Spot, arrange
from .shape import Grant, Shape, gpus_of, shape_of
from .snapshot import SLOT, ClusterSnapshot, PodState

Rank = tuple[int, bool, int, float, str]


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a node can serve a wish now."""

    grants: tuple[Grant, ...] = ()
    """What it would get."""
    owed: int = 0
    """Milli that it lacks."""
    why: str = ""
    """What is missing; empty: it fits."""
    never: bool = False
    """Whether that stays so, whatever comes free."""

    @property
    def fits(self) -> bool:
        """Whether all of the wish can be had now."""
        return not self.why


@dataclass(frozen=True, slots=True)
class Standing:
    """Who waits on a node, and the answers already given there: by how many of them come before."""

    ranks: tuple[Rank, ...]
    by_place: dict[int, Verdict]

    def place(self, pod: PodState) -> int:
        """How many come before ``pod``."""
        return bisect_left(self.ranks, pod.rank)


def standings(snapshot: ClusterSnapshot, pod: PodState) -> dict[str, Standing]:
    """The answers that nodes have given to a wish like that of ``pod``, for :func:`verdict`."""
    found: dict[str, Standing] = snapshot.memo(("verdict", wanted(pod), pod.slots))
    return found


def verdict(snapshot: ClusterSnapshot, pod: PodState, node: str, known: dict[str, Standing]) -> tuple[Verdict, int]:
    """How ``pod`` fares on ``node``, and its place there; ``known`` is `standings` of the pod.

    Neither the pod's limit nor its selector is looked at: they are the same for all nodes.
    """
    standing = known.get(node)
    if standing is None:
        standing = known[node] = Standing(_rivals(snapshot, node), {})
    place = standing.place(pod) if standing.ranks else 0
    found = standing.by_place.get(place)
    if found is None:
        found = standing.by_place[place] = _look(snapshot, pod, node, calm=not standing.ranks)
    return found, place


def has_room(snapshot: ClusterSnapshot, pod: PodState) -> bool:
    """Whether ``pod`` could start now on the node that it is nominated to."""
    return not pod.blocked and verdict(snapshot, pod, pod.nominated, standings(snapshot, pod))[0].fits


def _rivals(snapshot: ClusterSnapshot, node: str) -> tuple[Rank, ...]:
    """The ranks of those who wait on ``node`` or may wait when it is decided next, in line order."""
    there = {gpu.uuid for gpu in snapshot.gpus(node) or ()}

    def may_wait(pod: PodState) -> bool:
        lost = pod.allocated and not pod.pending and any(share.uuid not in there for share in pod.allocated.shares)
        return pod.waits or bool(lost and pod.requested and not pod.gone)

    pods = (*snapshot.pods(node), *snapshot.nominated(node))
    return tuple(sorted(pod.rank for pod in pods if may_wait(pod)))


def _look(snapshot: ClusterSnapshot, pod: PodState, node: str, *, calm: bool) -> Verdict:
    shape = shape_of(snapshot, node)
    if shape is None:
        return Verdict(why="the GPUs of the node are not known: no node plugin has reported them")
    wish = wanted(pod)
    seen = Verdict() if wish is None else _of_shape(wish, shape)
    if wish is not None and not calm and seen.fits:  # others in line leave less room, never more
        seen = _in_line(snapshot, pod, node, wish, shape)
    return seen if seen.never else _with_slot(snapshot, pod, node, seen)


def wanted(pod: PodState) -> Wish | None:
    """What GPUs a new pod starts with; ``None``: none."""
    wish = pod.requested.wish if pod.requested else None
    return wish if wish and wish.milli else None


@lru_cache(maxsize=32768)
def _of_shape(wish: Wish, shape: Shape) -> Verdict:
    gpus = gpus_of(shape)
    if refuse(wish, limit=None, gpus=gpus):
        return Verdict(owed=wish.milli, why=shortage.never(wish, gpus), never=True)
    found = arrange(wish, [Spot(gpu, shape[gpu.index].free) for gpu in gpus])
    grants = tuple((int(share.uuid), share.milli) for share in found.shares)
    return Verdict(grants, found.owed, shortage.now(wish, shape) if found.owed else "")


def _in_line(snapshot: ClusterSnapshot, pod: PodState, node: str, wish: Wish, shape: Shape) -> Verdict:
    found = prospect(snapshot, pod, node)
    places = {gpu.uuid: place for place, gpu in enumerate(snapshot.gpus(node) or ())}
    grants = tuple((places[share.uuid], share.milli) for share in found.shares)
    return Verdict(grants, found.owed, shortage.now(wish, shape) if found.owed else "")


def _with_slot(snapshot: ClusterSnapshot, pod: PodState, node: str, seen: Verdict) -> Verdict:
    """The same, unless the node takes no more pods."""
    facts = snapshot.facts(node)
    slots, taken = facts.allocatable.get(SLOT, 0), snapshot.slots_taken(node)
    if not facts.schedulable:
        why = "the node takes no new pods"
    elif not slots:
        why = f"the node offers no {SLOT}: the node plugin does not run there"
    elif slots - taken < pod.slots:
        why = f"no {SLOT} is left ({taken} of {slots} taken)"
    else:
        return seen
    return Verdict(seen.grants, seen.owed, why)
