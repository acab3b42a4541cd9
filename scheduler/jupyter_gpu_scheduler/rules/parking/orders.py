"""Pure: the orders to park, for pods of one node that wait for its GPUs.

A bundle is parked as a whole, and only if that makes room for a whole share that a pod waits for, in one island where
its wish says so. A pod that waits for what it has parked needs its own GPUs, and has whoever holds them parked. An
order stands while its bundle rests and somebody still waits for its GPUs; what nobody needs stays where it is.

What another pod must give back, for a guarantee or because it is preemptible, counts only once it drains: that has a
grace of minutes, a park takes seconds, and if it serves the one that waits, nothing need be given back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import groups
from jupyter_gpu.model.gpu import Gpu, GpuShare, total
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.parking import ParkCause, ParkOrder
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

from .room import Candidate, Order, Room, Step, last_first

MOST_ORDERS = 4
"""Bundles that are parked at a time on one node; more would slow each other down."""

Orders = Mapping[str, tuple[ParkOrder, ...]]
"""Orders by the uid of the pod."""
Pieces = Sequence[tuple[int, set[str]]]
"""The shares that a pod lacks: milli, and the GPUs on which one can be; each is on another GPU."""
Way = tuple[bool, Pieces]
"""Whether a pod gives up what it has for it, and the shares that it lacks then."""


@dataclass(frozen=True, slots=True)
class DecidedNode:
    """A node once it is decided which pod has which shares."""

    gpus: Mapping[str, Gpu]
    pods: Sequence[PodState]
    """Those that are not gone, next in line first."""
    shares: Mapping[str, tuple[GpuShare, ...]]
    """Shares of all pods, by uid; of new ones what is kept free for them."""
    owed: Mapping[str, int]
    """Milli that pods are owed, by uid."""
    wanted: Mapping[str, frozenset[str]]
    """UUIDs of the GPUs that could serve what they are owed, by uid; where a pod is missing, it could be any."""
    holds: Callable[[Owner], int]
    """Returns the milli that all pods of an owner hold, on all nodes."""


def park_orders(node: DecidedNode) -> Orders:
    """Return all orders that hold for the pods of a node; that of another cause stands while its GPU is allocated."""
    given = {pod.uid: tuple(_standing(node, pod)) for pod in node.pods if pod.allocated and pod.allocated.park}
    found = [candidate for pod in node.pods if pod.parkable for candidate in _candidates(node, pod, given)]
    chosen = _chosen(node, given, found) if found else []
    orders = {uid: list(each) for uid, each in given.items() if each}
    for candidate in chosen:
        own = orders.setdefault(candidate.uid, [])
        own += [ParkOrder(uuid, ParkCause.LINE) for uuid in sorted(candidate.parkable.uuids)]
    return {uid: tuple(sorted(own)) for uid, own in orders.items()}


def _standing(node: DecidedNode, pod: PodState) -> Iterator[ParkOrder]:
    """Yield the orders of a pod that others decide on."""
    assert pod.allocated is not None
    has = {share.uuid for share in node.shares[pod.uid]}
    for order in pod.allocated.park:
        if order.cause is not ParkCause.LINE and order.uuid in has:
            yield order


def _candidates(node: DecidedNode, pod: PodState, given: Orders) -> Iterator[Candidate]:
    """Yield what may be parked of a pod. What it is about to give back is room anyway."""
    has = {share.uuid for share in node.shares[pod.uid]}
    ordered = {order.uuid for order in pod.allocated.park} if pod.allocated else set()
    taken = {order.uuid for order in given.get(pod.uid, ())}
    for each in pod.parkable:
        if each.uuids <= has and each.uuids.isdisjoint(taken):
            above = node.holds(pod.owner) > each.guaranteed
            yield Candidate(pod.uid, each, not each.uuids.isdisjoint(ordered), pod.preemptible, above)


def _chosen(node: DecidedNode, given: Orders, found: Sequence[Candidate]) -> list[Candidate]:
    """Choose what is parked for the pods that wait, next in line first: all that is ordered already, and a few more."""
    taken = {uid: {order.uuid for order in each} for uid, each in given.items()}
    stays = {
        uid: [share for share in shares if share.uuid not in taken.get(uid, ())] for uid, shares in node.shares.items()
    }
    room = Room(node.gpus, stays, found)
    waiting = [pod for pod in node.pods if node.owed.get(pod.uid) and not pod.blocked]
    fair = any(pod.standing for pod in waiting)
    kept_back: set[str] = set()
    in_vain: set[Wish | None] = set()  # of new pods, as a line may be long
    for pod in waiting:
        if len(room.leaving) == len(found):
            break
        if (pod.pending and pod.wish in in_vain) or (not pod.preemptible and _serve(node, room, pod, kept_back)):
            continue
        if pod.pending:
            in_vain.add(pod.wish)
        if pod.overdue or not fair:
            kept_back |= node.wanted.get(pod.uid, frozenset())
    leaving = sorted(room.leaving.values(), key=lambda each: not each.ordered)
    free = max(0, MOST_ORDERS - sum(map(len, given.values())) - sum(each.ordered for each in leaving))
    return [each for each in leaving if each.ordered] + [each for each in leaving if not each.ordered][:free]


def _serve(node: DecidedNode, room: Room, pod: PodState, kept_back: Collection[str]) -> bool:
    """Make room for what a pod lacks: for its parked bundles, each as a whole, or else for shares of its wish.

    Tell whether there is room for all of it. Of the GPUs that are ``kept_back`` for others it can get none.
    """
    shares, wish = node.shares[pod.uid], pod.wish
    assert wish is not None
    has = {share.uuid for share in shares}
    able = frozenset(node.wanted.get(pod.uid, node.gpus)).difference(kept_back)
    if pod.parked and pod.parked.needed:
        missing = pod.parked.missing(has, wish.milli - total(shares))
        own = [[(share.milli, {share.uuid} & able) for share in bundle] for bundle in missing]
        served = [_take(room, wish, pieces, whole=True) for pieces in own]  # each that can be, not only the first
        return all(served)
    ways = list(_ways(node, pod, wish, has, able))
    if wish.topology in ("island", "switch"):
        ways = _best(room, wish, ways)
    for _, way in ways:
        steps = _take(room, wish, way, whole=pod.pending)
        _leave_out(room, wish, way, steps)
        if len(steps) == len(way):
            return True
    return False


def _best(room: Room, wish: Wish, ways: Sequence[Way]) -> list[Way]:
    """Return the best of the ways that serve all of a wish: where it is already, then by whom it has parked."""
    tried = [(moves, _tried(room, wish, way), number) for number, (moves, way) in enumerate(ways)]
    able = [(moves, last_first(steps), number) for moves, steps, number in tried if steps is not None]
    return [ways[min(able)[-1]]] if able else []


def _ways(node: DecidedNode, pod: PodState, wish: Wish, has: set[str], able: frozenset[str]) -> Iterator[Way]:
    """Yield the ways to serve what a pod lacks, one for each island that a wish may be served in.

    What it was given in one island it may leave for another one; the GPUs there are not wanted while it is in use.
    """
    lacks = list((Counter(wish.pieces) - Counter(share.milli for share in node.shares[pod.uid])).elements())
    joined = wish.topology in ("island", "switch")
    for group in groups(node.gpus.values(), wish):
        uuids = {gpu.uuid for gpu in group}
        if not joined or uuids >= has:
            yield False, [(size, (uuids & able) - has) for size in lacks]
        else:
            yield True, [(size, (uuids & able) - has) for size in wish.pieces]


def _tried(room: Room, wish: Wish, pieces: Pieces) -> Sequence[Step] | None:
    """Return the steps that would make room for all of the pieces; ``None``: there is no room for all."""
    steps = _take(room, wish, pieces, whole=True)
    room.undo(steps)
    return steps if len(steps) == len(pieces) else None


def _leave_out(room: Room, wish: Wish, pieces: Pieces, steps: Sequence[Step]) -> None:
    """Take back each bundle without which the pod is served as well, as others with several GPUs make room enough."""
    for candidate in sorted((each for step in steps for each in step.leaving), key=lambda each: each.order)[::-1]:
        room.undo(steps)
        others = {each.order for step in steps for each in step.leaving} - {candidate.order}
        fewer = _take(room, wish, pieces, whole=False, only=others)
        if len(fewer) < len(steps):
            room.undo(fewer)
            for step in steps:
                room.take(step)
        else:
            steps = fewer


def _take(
    room: Room,
    wish: Wish,
    pieces: Pieces,
    *,
    whole: bool,
    only: Collection[Order] | None = None,
) -> Sequence[Step]:
    """Make room for shares of these sizes; return the steps.

    ``whole``: only all of them help; ``only``: the bundles that may be parked for it, ``None``: any.
    """
    steps: list[Step] = []
    for size, uuids in pieces:
        step = room.best(wish, size, uuids - {each.gpu.uuid for each in steps}, only)
        if step is None:
            break
        room.take(step)
        steps.append(step)
    if whole and len(steps) < len(pieces):
        room.undo(steps)
        return ()
    return steps
