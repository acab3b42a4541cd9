"""GPUs that pods of one node give back for others: guaranteed GPUs, and those of preemptible pods.

A preemptible pod runs on what others do not use, so it gives back what another owner's pod waits for. A pod whose owner
is below the guaranteed amount takes from pods of owners above theirs, each time from the owner with the most for the
weight. No owner is brought below the guaranteed amount. Within an owner, closed shares go first, then those that are
open and rest, then the newest.

What is free or drains already is counted first. What drains stays reclaimed until it is closed, else its pod would take
it back. Only a share that makes room for a whole step of the wish is reclaimed: half of a GPU helps no wish for one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from jupyter_gpu.model.annotations import Reason, Wish
from jupyter_gpu.model.demand import booked, wished_bytes
from jupyter_gpu.model.feasible import fits, groups
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.use_class import use_class
from jupyter_gpu_scheduler.rules.state.books import memory_beside
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import share

from .owner_limits import OwnerLimits

LimitsOf = Callable[[Owner], OwnerLimits]


def reclaimed(snapshot: ClusterSnapshot, node: str, limits: LimitsOf, *, guarantees: bool = True) -> dict[str, int]:
    """Return the milli that pods of ``node`` give back, by uid, for `OwnerLimits.reclaimed`; the others are left out.

    ``guarantees``: whether guaranteed GPUs are reclaimed, too, not only those of preemptible pods. Call this again when
    the node changes; the result stays the same while pods have their grace and close what they give back.
    """
    waiting = [pod for pod in snapshot.line(node) if _is_served(pod)]
    if not waiting or not (guarantees or any(map(_may_give, snapshot.pods(node)))):
        return {}
    reclaim = _NodeReclaim(snapshot, node, limits, guarantees)
    for pod in waiting:
        reclaim.serve(pod)
    return reclaim.taken


def _may_give(pod: PodState) -> bool:
    """Tell whether a pod gives back for any other: it is preemptible, or what it had to give back drains."""
    return pod.preemptible or (pod.allocated is not None and pod.allocated.reason is Reason.LIMIT_EXCEEDED)


def _is_served(pod: PodState) -> bool:
    """Tell whether GPUs are reclaimed for a pod in line; its wish may have ended, and the ticket not yet."""
    return bool(pod.wish and pod.wish.milli) and not (pod.blocked or pod.preemptible or pod.fault)


@dataclass(eq=False, slots=True)
class _Room:
    """Room that there is, or that a pod could make, on one GPU."""

    gpu: Gpu
    milli: int
    memory: int
    """Bytes."""
    pod: PodState | None = None
    """The pod that makes it; ``None``: it is free."""
    closing: bool = False
    """Whether it drains already."""
    age: int = 0


@dataclass(frozen=True, slots=True)
class _Step:
    """One share of a wish, and the room that serves it."""

    room: _Room
    milli: int
    reclaims: bool
    """Whether the pod that makes the room must give it back."""


class _NodeReclaim:
    """The rooms of one node, and what is reclaimed so far."""

    def __init__(self, snapshot: ClusterSnapshot, node: str, limits: LimitsOf, guarantees: bool) -> None:
        self.taken: dict[str, int] = {}
        self._snapshot = snapshot
        self._limits = limits
        self._guarantees = guarantees
        self._gpus = snapshot.gpus(node) or ()
        self._rooms = list(_rooms(snapshot, node))
        self._has: dict[Owner, int] = {}
        """Milli of the owners, as if all were carried out."""

    def serve(self, pod: PodState) -> None:
        """Reclaim what a waiting pod lacks: within one group of GPUs, and all or nothing where only all of it helps."""
        wish = pod.wish
        assert wish is not None
        joined = wish.topology in ("island", "switch")
        usable = [gpu for gpu in self._gpus if gpu.uuid not in pod.lacks]
        for group in groups(usable, wish):
            found = self._serve_within(pod, wish, {gpu.uuid for gpu in group})
            if found or not joined:
                return

    def _serve_within(self, pod: PodState, wish: Wish, uuids: set[str]) -> bool:
        """Reclaim within these GPUs; tell whether the pod gets there all that it lacks."""
        shares = pod.allocated.shares if pod.allocated and pod.has else ()
        left = uuids - {share.uuid for share in shares}
        lacks = list((Counter(wish.pieces) - Counter(share.milli for share in shares)).elements())
        lacks = lacks[: len(wish.pieces) - len(shares)]  # shares that are too small grow where they are
        steps: list[_Step] = []
        for size in lacks:
            step = self._best(pod, wish, size, left)
            if step is None:
                break
            self._carry_out(pod, wish, step, 1)
            left.discard(step.room.gpu.uuid)
            steps.append(step)
        found = len(steps) == len(lacks)
        if not found and (pod.pending or wish.topology in ("island", "switch")):
            for step in steps:
                self._carry_out(pod, wish, step, -1)
        return found

    def _carry_out(self, pod: PodState, wish: Wish, step: _Step, sign: int) -> None:
        """Serve a pod with a step; with the sign -1, undo that."""
        room, milli = step.room, sign * step.milli
        room.milli -= milli
        room.memory -= sign * wished_bytes(room.gpu, wish, step.milli)
        self._has[pod.owner] = self._owner_has(pod.owner) + milli
        if room.pod and step.reclaims:
            self.taken[room.pod.uid] = self.taken.get(room.pod.uid, 0) + milli
            if not self.taken[room.pod.uid]:
                del self.taken[room.pod.uid]
            if not room.closing:
                self._has[room.pod.owner] = self._owner_has(room.pod.owner) - milli

    def _owner_has(self, owner: Owner) -> int:
        if owner not in self._has:
            self._has[owner] = sum(pod.has for pod in self._snapshot.owned(owner) if not pod.gone)
        return self._has[owner]

    def _best(self, pod: PodState, wish: Wish, size: int, uuids: Collection[str]) -> _Step | None:
        """Return the room that one step of a wish takes first; ``None`` where there is none that it may take."""
        below = self._guarantees and self._owner_has(pod.owner) + size <= self._limits(pod.owner).guaranteed
        able = [
            _Step(room, size, self._reclaims(pod, room, below))
            for room in self._rooms
            if room.gpu.uuid in uuids and room.gpu.healthy and _serves(room, wish, size)
        ]
        return min(filter(self._is_allowed, able), key=self._order, default=None)

    def _reclaims(self, pod: PodState, room: _Room, below: bool) -> bool:
        """Tell whether a pod may reclaim the room; ``below``: its owner has less than is guaranteed.

        What drains because it was reclaimed stays reclaimed for any pod that waits, even if another is first by now.
        """
        giver = room.pod
        if giver is None:
            return False
        if room.closing and giver.allocated is not None and giver.allocated.reason is Reason.LIMIT_EXCEEDED:
            return True
        return giver.owner != pod.owner and (below or giver.preemptible)

    def _is_allowed(self, step: _Step) -> bool:
        giver = step.room.pod
        if giver is None or step.room.closing:
            return True
        return step.reclaims and self._owner_has(giver.owner) - step.milli >= self._limits(giver.owner).guaranteed

    def _order(self, step: _Step) -> tuple[object, ...]:
        room, pod = step.room, step.room.pod
        if pod is None or room.closing:
            return (int(room.closing), room.milli)
        most = share(self._owner_has(pod.owner), self._limits(pod.owner).weight)
        use = use_class(room.gpu.uuid, pod.busy, pod.resting)
        return (2, not pod.preemptible, -most, pod.owner, use, -pod.created, -room.age, pod.uid)


def _serves(room: _Room, wish: Wish, size: int) -> bool:
    if room.milli < size or not fits(room.gpu, wish, size):
        return False
    return room.memory >= wished_bytes(room.gpu, wish, size)


def _rooms(snapshot: ClusterSnapshot, node: str) -> Iterator[_Room]:
    gpus = {gpu.uuid: gpu for gpu in snapshot.gpus(node) or ()}
    for uuid, gpu in gpus.items():
        milli, memory = snapshot.free(uuid, node), snapshot.free_memory(gpu, node)
        yield _Room(gpu, milli, memory_beside(gpu.memory, milli) if memory is None else memory)
    for pod in snapshot.pods(node):
        shares = pod.allocated.shares if pod.allocated and pod.has and not pod.gone else ()
        stays = {share.uuid: share for share in shares}
        for age, held in enumerate(shares):
            if held.uuid in gpus:
                yield _Room(gpus[held.uuid], held.milli, _booked(gpus[held.uuid], held), pod, age=age)
        for uuid, milli in pod.held.items():
            left = stays.get(uuid) or GpuShare(uuid, 0)
            if uuid in gpus and milli > left.milli:
                memory = max(0, pod.memory_held(gpus[uuid]) - _booked(gpus[uuid], left))
                yield _Room(gpus[uuid], milli - left.milli, memory, pod, closing=True)


def _booked(gpu: Gpu, share: GpuShare) -> int:
    return booked(gpu.memory, share.milli, share.memory)
