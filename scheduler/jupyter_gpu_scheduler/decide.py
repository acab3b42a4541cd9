"""Who gets or loses which share of a node's GPUs now, in which order and why.

One pass: what must be given back is given back; then whoever is owed something is served in line order (priority,
then ticket). A wish that is not wholly served keeps its place: nobody behind it gets a GPU that could serve it, so
nobody overtakes. What only others can use (another model, more memory, another island) is not held back.

Decisions are a function of the snapshot alone. Applied and decided again they change nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from jupyter_gpu.model.annotations import Allocated, Reason
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.gpu import Gpu, GpuShare, total
from jupyter_gpu.model.quantity import MILLI_PER_GPU, count_gpus, format_gpus

from .limits import refuse
from .placement import Spot, arrange, settled
from .snapshot import ClusterSnapshot, PodState


@dataclass(frozen=True, slots=True)
class Decision:
    """A new ``allocated`` of one pod."""

    uid: str
    allocated: Allocated
    added: tuple[GpuShare, ...] = ()
    """Shares that were not there before; a share that changes its size is both added and removed."""
    removed: tuple[GpuShare, ...] = ()


def decide(snapshot: ClusterSnapshot, node: str) -> tuple[Decision, ...]:
    """The pods of ``node`` whose ``allocated`` changes: who loses first, then who gains, in line order.

    Nothing is decided for a node that is not known, nor for pods that are gone.
    """
    gpus = snapshot.gpus(node)
    if gpus is None:
        return ()
    pods = snapshot.pods(node)
    desk = _Desk(snapshot, gpus, sorted((pod for pod in pods if not pod.gone), key=lambda pod: pod.rank))
    desk.serve()
    last = max((pod.ticket or 0 for pod in pods), default=0)
    return _decisions(desk, last)


class _Desk:
    """A node while its pods are served: ``shares`` and ``owed`` by uid are what is decided so far."""

    def __init__(self, snapshot: ClusterSnapshot, gpus: Sequence[Gpu], pods: Sequence[PodState]) -> None:
        self.gpus = {gpu.uuid: gpu for gpu in gpus}
        self.pods = pods
        self.shares: dict[str, tuple[GpuShare, ...]] = {pod.uid: _present(pod, self.gpus) for pod in pods}
        self.owed: dict[str, int] = {}
        self.refused: dict[str, GpuError] = {}
        self._held = {gpu.uuid: dict(snapshot.holders(gpu.uuid)) for gpu in gpus}

    def serve(self) -> None:
        """Decide for all pods."""
        waiting = [pod for pod in self.pods if not self._serve_alone(pod)]
        while self._serve_line(waiting):  # again while somebody gave back what somebody before it may want
            pass

    def _serve_alone(self, pod: PodState) -> bool:
        """Serve a pod that needs nothing but what it holds; False if it needs more."""
        wish = pod.requested.wish if pod.requested else None
        if wish is None:
            self._give(pod, ())
            return True
        if settled(wish, self.shares[pod.uid], self.gpus) and (pod.limit is None or wish.milli <= pod.limit):
            return True
        error = refuse(wish, limit=pod.limit, gpus=tuple(self.gpus.values()))
        if error is not None:
            self.refused[pod.uid] = error
            return True
        found = arrange(wish, self._spots(pod, self.gpus.keys()))
        if found.owed or not self._stays(self.shares[pod.uid], found.shares):
            return False
        self._give(pod, found.shares)
        return True

    def _stays(self, before: Sequence[GpuShare], after: Sequence[GpuShare]) -> bool:
        """Whether the room of others could make it no better: nothing moves, nothing changes on a broken GPU."""
        had, gets = ({share.uuid for share in shares} for shares in (before, after))
        broken = {share.uuid for share in after if share not in before and not self.gpus[share.uuid].healthy}
        return not broken and (had <= gets or gets <= had)

    def _serve_line(self, waiting: Iterable[PodState]) -> bool:
        """Serve those who need more, in order; True if somebody gave something back."""
        kept_back: set[str] = set()
        released = False
        for pod in waiting:
            assert pod.requested is not None
            found = arrange(pod.requested.wish, self._spots(pod, kept_back))
            released |= self._give(pod, found.shares)
            self.owed[pod.uid] = found.owed
            kept_back |= found.wanted
        return released

    def _spots(self, pod: PodState, kept_back: Iterable[str]) -> list[Spot]:
        """The node as ``pod`` sees it; of GPUs that are kept back for others it gets no more than it holds."""
        closed = frozenset(kept_back)
        has = {share.uuid: (age, share.milli) for age, share in enumerate(self.shares[pod.uid])}
        spots = []
        for uuid, gpu in self.gpus.items():
            held = self._held[uuid].get(pod.uid, 0)
            room = max(0, MILLI_PER_GPU - sum(self._held[uuid].values()) + held)
            if uuid in closed:
                room = min(room, held)
            age, share = has.get(uuid, (0, 0))
            spots.append(Spot(gpu, room, held, share, age, uuid in pod.busy))
        return spots

    def _give(self, pod: PodState, shares: tuple[GpuShare, ...]) -> bool:
        """Note the new shares of a pod; True if some of what it held came free."""
        before = self.shares[pod.uid]
        if shares == before:
            return False
        self.shares[pod.uid] = shares
        now = {share.uuid: share.milli for share in shares}
        attached = replace(pod, allocated=None).held
        for uuid in {share.uuid for share in (*before, *shares)}:
            self._held[uuid][pod.uid] = max(now.get(uuid, 0), attached.get(uuid, 0))
        return any(now.get(share.uuid, 0) < share.milli for share in before)


def _present(pod: PodState, gpus: dict[str, Gpu]) -> tuple[GpuShare, ...]:
    """The shares of a pod without those on GPUs that vanished."""
    return tuple(share for share in pod.allocated.shares if share.uuid in gpus) if pod.allocated else ()


def _decisions(desk: _Desk, last: int) -> tuple[Decision, ...]:
    """What changed, with reasons and places in line; ``last`` is the highest ticket taken."""
    decisions = []
    line = 0
    for pod in desk.pods:
        before = pod.allocated or Allocated(0)
        ticket = position = None
        if desk.owed.get(pod.uid):
            line += 1
            position = line
            ticket = before.ticket
            if ticket is None:
                last += 1
                ticket = last
        reason, message = _reason(pod, desk)
        generation = pod.requested.generation if pod.requested else before.observed_generation
        shares = desk.shares[pod.uid]
        after = replace(
            before,
            observed_generation=generation,
            shares=shares,
            reason=reason,
            message=message,
            ticket=ticket,
            position=position,
        )
        if after != pod.allocated and (pod.allocated or pod.requested):
            added = tuple(share for share in shares if share not in before.shares)
            removed = tuple(share for share in before.shares if share not in shares)
            decisions.append(Decision(pod.uid, after, added, removed))
    return tuple(sorted(decisions, key=lambda decision: (not decision.removed, not decision.added)))


def _reason(pod: PodState, desk: _Desk) -> tuple[Reason | None, str]:
    """Why the pod has less than it wants; only what concerns this pod, so that others' changes do not rewrite it."""
    error = desk.refused.get(pod.uid)
    if error is not None:
        return Reason(error.reason), error.message
    owed = desk.owed.get(pod.uid, 0)
    if not owed:
        return None, ""
    has = total(desk.shares[pod.uid])
    verb = "is" if owed <= MILLI_PER_GPU else "are"
    if not has:
        return Reason.DEFERRED, f"{count_gpus(owed)} {verb} owed; not enough is free now."
    return (
        Reason.PARTIAL,
        f"{format_gpus(has)} of {format_gpus(has + owed)} GPUs; {format_gpus(owed)} more {verb} owed.",
    )
