"""One pass over the line of a node, the same for running pods and for new ones.

What must be given back is given back; then every pod that is owed something is served in line order. If a wish is not
served wholly, the GPUs that could serve the rest are kept back from the pods behind it, so none overtakes. GPUs that it
can't use (another model, less memory, another island) are not kept back.

A pending pod is served like the others, with two differences. Its GPUs are only kept back until it is bound. And it can
be bound only with what is free in the records, not with what another pod is about to give back.

Where limits are in force, only the part of a wish that the pod's allowance permits is served (`PodState.wish`). The
rest stands in no line, as room would not help it. A pod whose wish can't be read or served keeps at most its allowance.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import takewhile

from jupyter_gpu.model.annotations import Allocated, Wish
from jupyter_gpu.model.demand import HeldMemory, booked, of_shares, part
from jupyter_gpu.model.errors import GpuError, Infeasible, LimitExceeded
from jupyter_gpu.model.feasible import named, refuse
from jupyter_gpu.model.gpu import Gpu, GpuShare, total
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.use_class import use_class
from jupyter_gpu_scheduler.rules.parking.orders import DecidedNode
from jupyter_gpu_scheduler.rules.parking.returns import returned
from jupyter_gpu_scheduler.rules.placement.models import ModelAllowances, within_models
from jupyter_gpu_scheduler.rules.placement.placement import Arrangement, Spot, arrange, fulfils
from jupyter_gpu_scheduler.rules.state.books import free_memory, memory_beside
from jupyter_gpu_scheduler.rules.state.permitted import permitted
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from jupyter_gpu_scheduler.rules.state.standing import next_amount

from .fair_line import FairLine
from .gains import gained
from .lending import Host, guest_share, may_be_guest, working

CAME_LATER = (
    "Some GPUs came to this node after this server was started, and a container can't be given their devices. "
    "Start the server anew, or ask for less."
)
MODEL_LIMIT = "The limit of this GPU's model permits fewer here than you ask for."
STEP = 256
"""Pods that are served in one step."""


class QueuePass:
    """One pass over the pods of a node; ``shares`` and ``owed``, by uid, are what is decided so far."""

    def __init__(self, snapshot: ClusterSnapshot, node: str, gpus: Sequence[Gpu], pods: Iterable[PodState]) -> None:
        self.gpus = {gpu.uuid: gpu for gpu in gpus}
        known = sorted((pod for pod in pods if not pod.gone), key=lambda pod: pod.rank)
        self.pods = [pod.settled() if pod.parked else pod for pod in known]
        """Next first; without what was parked since it was decided."""
        self.unsettled = {before.uid: before for before, pod in zip(known, self.pods, strict=True) if before is not pod}
        """Those of the pods of which something was, as they are recorded."""
        self.shares = {pod.uid: _present(pod, self.gpus) for pod in self.pods}
        self.owed: dict[str, int] = {}
        self.owed_memory: dict[str, int] = {}
        """Bytes that the shares of a pod lack, by uid, where no milli need be missing."""
        self.refused: dict[str, GpuError] = {}
        self.cut: set[str] = set()
        """The pods that get less than their wish because of their allowances for GPUs of some models."""
        self._wanted: dict[str, frozenset[str]] = {}
        """The GPUs that could serve what a pod is owed, by uid."""
        self._lends = snapshot.lends
        self._refusals: dict[tuple[Wish, int | None, frozenset[str], ModelAllowances], GpuError | None] = {}
        self._outside = snapshot.facts(node).outside
        self._priority = snapshot.priority
        self._held = {gpu.uuid: dict(snapshot.holders(gpu.uuid, node)) for gpu in gpus}
        self._free = {uuid: MILLI_PER_GPU - sum(held.values()) for uuid, held in self._held.items()}
        recorded = snapshot.recorded_memory & self.gpus.keys()
        self._memory = {uuid: dict(snapshot.memory_held(uuid, node)) for uuid in recorded}
        self._free_memory = {uuid: self._left(self.gpus[uuid], "") for uuid in self._memory}
        if self.unsettled:
            self._let_go()

    def _let_go(self) -> None:
        """Note what was parked as free for other pods; new ones must wait until that is recorded."""
        for pod in self.pods:
            before = self.unsettled.get(pod.uid, pod)
            for uuid in before.held.keys() & self.gpus.keys() if before is not pod else ():
                self._held[uuid][pod.uid] = pod.held.get(uuid, 0)
                self._note_memory(uuid, pod.uid, pod.held_memory.get(uuid))

    def decided(self, holds: Callable[[Owner], int]) -> DecidedNode:
        """Return what is decided, once all pods are served; ``holds``: the milli that all pods of an owner hold."""
        return DecidedNode(self.gpus, self.pods, self.shares, self.owed, self._wanted, holds)

    def serve(self) -> None:
        """Decide for all pods."""
        deque(self.serve_in_steps(), maxlen=0)

    def serve_in_steps(self) -> Iterator[None]:
        """Decide for all pods, ``STEP`` at a time: a line may be long."""
        waiting = []
        for number, pod in enumerate(self.pods, start=1):
            if not self._serve_alone(pod):
                waiting.append(pod)
            if not number % STEP:
                yield
        alone = len(waiting) == 1 and not waiting[0].pending  # then the order of steps does not matter
        if not alone and any(pod.standing for pod in waiting):
            yield from self._serve_fairly(waiting)
        else:
            yield from self._serve_line(waiting)
        if self._lends:
            self._lend(waiting)

    def _lend(self, waiting: Iterable[PodState]) -> None:
        """Make those that get nothing guests, in line order, after all that is free is given."""
        ahead: set[str] = set()
        for pod in sorted(waiting, key=lambda pod: pod.rank):
            wish = pod.wish
            lacks = self.owed.get(pod.uid) and not self.shares[pod.uid]
            if wish is None or pod.pending or not lacks or not may_be_guest(pod, wish):
                ahead.add(pod.uid)
                continue
            if share := guest_share(pod, wish, (self._host(gpu, ahead) for gpu in _usable(pod, self.gpus).values())):
                self._give(pod, (share,))

    def _host(self, gpu: Gpu, ahead: Collection[str]) -> Host:
        uuid = gpu.uuid
        wanted_by = [uid for uid, uuids in self._wanted.items() if uuid in uuids]
        memory = self._memory.get(uuid, {})
        return Host(gpu, self._held[uuid], memory, working(self.pods, uuid), wanted_by, ahead, uuid in self._outside)

    def _serve_alone(self, pod: PodState) -> bool:
        """Serve a pod that needs nothing but what it holds; False if it needs more."""
        if pod.fault:
            self._refuse(pod, Infeasible(pod.fault, have=total(self.shares[pod.uid])))
            return True
        wish = pod.wish
        if wish is None:
            self._give(pod, ())
            return True
        fulfilled = not pod.model_allowances and fulfils(wish, self.shares[pod.uid], self.gpus)
        if fulfilled and (pod.limit is None or wish.milli <= pod.limit):
            return True
        error = self._refusal(pod, wish)
        if error is not None:
            self._refuse(pod, error)
            return True
        if pod.pending:
            return False
        found = self._arrange(pod, wish, self.gpus.keys())
        if found.owed or found.owed_memory or not self._stays(self.shares[pod.uid], found.shares):
            return False
        self._give(pod, found.shares)
        return True

    def _refuse(self, pod: PodState, error: GpuError) -> None:
        """Give a pod nothing more, for this reason; it keeps what it has, within its allowances."""
        self.refused[pod.uid] = error
        shares = self.shares[pod.uid]
        for words, allowance in pod.model_allowances:
            such = tuple(share for share in shares if named(self.gpus[share.uuid].model, words))
            lost = set(such) - set(_within(allowance, such, pod))
            shares = tuple(share for share in shares if share not in lost)
        self._give(pod, _within(pod.allowance, shares, pod))

    def _refusal(self, pod: PodState, wish: Wish) -> GpuError | None:
        """Return why this can never be had here; computed once for all pods with the same wish, limit and devices."""
        key = (wish, pod.limit, pod.lacks, pod.model_allowances if pod.pending else ())
        if key not in self._refusals:
            error = refuse(wish, limit=pod.limit, gpus=tuple(_usable(pod, self.gpus).values()))
            if error and pod.lacks and refuse(wish, limit=pod.limit, gpus=tuple(self.gpus.values())) is None:
                error = Infeasible(CAME_LATER, have=error.details.get("have", 0))
            if error is None and key[-1] and within_models(wish, self._spots(pod, ()), key[-1])[0] != wish:
                error = LimitExceeded(MODEL_LIMIT, limit=0)
            self._refusals[key] = error
        return self._refusals[key]

    def _stays(self, before: Sequence[GpuShare], after: Sequence[GpuShare]) -> bool:
        """Tell whether the change could be no better if other pods had less.

        That is so if nothing moves, no share changes on a broken GPU, and no outside process uses a newly taken GPU.
        """
        had, gets = ({share.uuid for share in shares} for shares in (before, after))
        broken = {share.uuid for share in after if share not in before and not self.gpus[share.uuid].healthy}
        return not broken and not (gets - had) & self._outside and (had <= gets or gets <= had)

    def _serve_line(self, waiting: Iterable[PodState]) -> Iterator[None]:
        """Serve the pods that need more, in order. What one of them gives back is not free before it is closed."""
        kept_back: set[str] = set()
        in_vain: set[Wish] = set()  # new pods got nothing for them, and room only becomes less
        for number, pod in enumerate(waiting, start=1):
            if not number % STEP:
                yield
            wish = pod.wish
            assert wish is not None
            if pod.blocked or (pod.pending and wish in in_vain):
                self.owed[pod.uid] = wish.milli
                continue
            found = self._arrange(pod, wish, kept_back)
            if pod.pending and not found.shares:
                in_vain.add(wish)
            self._give(pod, found.shares)
            self.owed[pod.uid], self.owed_memory[pod.uid] = found.owed, found.owed_memory
            self._wanted[pod.uid] = found.wanted
            kept_back |= found.wanted

    def _serve_fairly(self, waiting: Sequence[PodState]) -> Iterator[None]:
        """Serve the pods that need more step by step, each time the one whose owner comes first (`standing`).

        Only a pod that has waited too long keeps anything back from those behind it. Serving is repeated while anything
        comes of it: a pod that is served one step further may give up a GPU that it was given before.
        """
        self._break_circular_wait(waiting)
        line = FairLine(waiting, {pod.uid: total(self.shares[pod.uid]) for pod in waiting})
        first = {pod.uid: self.shares[pod.uid] for pod in waiting}
        kept_back: set[str] = set()
        while line.restart():
            for number, pod in enumerate(line, start=1):
                if not number % STEP:
                    yield
                line.served(pod, *self._serve_step(pod, first[pod.uid], kept_back))

    def _break_circular_wait(self, waiting: Sequence[PodState]) -> None:
        """Take what later pods gained meanwhile for the first pod that has waited too long, if it then has all.

        Their owners keep what is guaranteed to them.
        """
        first = min((pod for pod in waiting if pod.overdue and not pod.blocked), key=_by_ticket, default=None)
        if first is None or first.wish is None or first.parked:  # what is parked can come back to its own GPUs only
            return
        later = sorted((pod for pod in waiting if _by_ticket(pod) > _by_ticket(first)), key=_by_ticket, reverse=True)
        before = {pod.uid: self.shares[pod.uid] for pod in later}
        offers = ((pod, share) for pod in later for share in gained(pod, before[pod.uid]))
        lost: Counter[Owner] = Counter()
        while self._lacks_once_closed(first, first.wish):
            pod, share = next(offers, (None, None))
            if pod is None or share is None:
                for pod in later:
                    self._give(pod, before[pod.uid])
                return
            standing = pod.standing
            if standing and standing.holds - lost[pod.owner] - share.milli >= standing.guaranteed:
                lost[pod.owner] += share.milli
                self._give(pod, tuple(each for each in self.shares[pod.uid] if each != share))

    def _lacks_once_closed(self, pod: PodState, wish: Wish) -> int:
        """Return the milli that a pod would lack if all that drains were closed, or the bytes."""
        others: dict[str, list[GpuShare]] = {uuid: [] for uuid in self.gpus}
        for uid, shares in self.shares.items():
            for share in shares if uid != pod.uid else ():
                others[share.uuid].append(share)
        found = arrange(wish, [_beside(spot, others[spot.gpu.uuid]) for spot in self._spots(pod, ())])
        return found.owed or found.owed_memory

    def _serve_step(self, pod: PodState, first: tuple[GpuShare, ...], kept_back: set[str]) -> tuple[int, bool]:
        """Serve the next step of a wish; return what the pod has then, and whether more could follow.

        Each time it is arranged anew from the shares that the pod had at ``first``, so that the steps together change
        as little as all of it at once.
        """
        wish = pod.wish
        assert wish is not None
        has = total(self.shares[pod.uid])
        if pod.blocked:
            self.owed[pod.uid] = wish.milli
            return has, False
        amount = next_amount(wish, has, whole=pod.pending)
        self._give(pod, first)
        found = self._arrange(pod, permitted(wish, amount), kept_back)
        goes_on = not found.owed and has < total(found.shares) and amount < wish.milli
        if not goes_on and amount < wish.milli:  # there is no room for the step, or allowances for models cut it
            found = self._arrange(pod, wish, kept_back)
        shares = found.shares if not (pod.pending and found.owed) or pod.overdue else ()
        self._give(pod, shares)
        self.owed[pod.uid] = found.owed + (wish.milli - amount if goes_on else 0)
        self.owed_memory[pod.uid] = found.owed_memory
        self._wanted[pod.uid] = found.wanted
        if pod.overdue:
            kept_back |= found.wanted
        return total(shares), goes_on

    def _arrange(self, pod: PodState, wish: Wish, kept_back: Iterable[str]) -> Arrangement:
        """Return the least change that serves ``wish`` as far as there is room, and the pod's allowances permit."""
        spots = self._spots(pod, kept_back)
        if pod.parked:
            shares = self.shares[pod.uid]
            if pod.parked.needed and wish.milli > total(shares):
                return returned(pod.parked, wish, shares, spots, partial(self._permits, pod))
            away = pod.parked.away
            spots = [replace(spot, room=0) if spot.gpu.uuid in away else spot for spot in spots]
            found = self._arrange_within(pod, wish, spots)
            return replace(found, wanted=found.wanted - away)
        return self._arrange_within(pod, wish, spots)

    def _permits(self, pod: PodState, shares: Sequence[GpuShare]) -> bool:
        """Tell whether a pod's allowances for models permit these shares."""
        for words, allowance in pod.model_allowances:
            such = (share for share in shares if share.uuid in self.gpus and named(self.gpus[share.uuid].model, words))
            if total(such) > allowance:
                self.cut.add(pod.uid)
                return False
        return True

    def _arrange_within(self, pod: PodState, wish: Wish, spots: list[Spot]) -> Arrangement:
        if not pod.model_allowances:
            return arrange(wish, spots)
        part, spots = within_models(wish, spots, pod.model_allowances)
        if part != wish:
            self.cut.add(pod.uid)
        return arrange(part, spots)

    def _spots(self, pod: PodState, kept_back: Iterable[str]) -> list[Spot]:
        """Return the GPUs as ``pod`` sees them; of those kept back for others it gets no more than it holds.

        In a fair line no more than it has: what it closes may be meant for another pod.
        """
        closed = frozenset(kept_back)
        has = {share.uuid: (age, share.milli, share.memory) for age, share in enumerate(self.shares[pod.uid])}
        spots = []
        for uuid, gpu in _usable(pod, self.gpus).items():
            held = self._held[uuid].get(pod.uid, 0)
            age, share, memory = has.get(uuid, (0, 0, 0))
            room = max(0, MILLI_PER_GPU - sum(self._held[uuid].values()) + held)
            if uuid in closed:
                room = min(room, share if pod.standing else held)
            if pod.pending:
                room = max(0, min(room, self._free[uuid]))
            use = use_class(uuid, pod.busy, pod.resting)
            left = None
            if self._memory.get(uuid):
                most = booked(gpu.memory, share, memory) if pod.standing else self._bytes_held(pod, gpu)
                others_may = uuid in closed and share < MILLI_PER_GPU  # without time, memory serves nobody
                left = self._memory_room(pod, gpu, most if others_may else None)
            given = (uuid in self._outside, memory, left, self._priority(uuid))
            spots.append(Spot(gpu, room, held, share, age, use, *given))
        return spots

    def _memory_room(self, pod: PodState, gpu: Gpu, most: int | None) -> int:
        """Return the bytes of a GPU that a pod may have, at ``most`` so many; shares there record their memory."""
        room = self._left(gpu, pod.uid)
        if pod.pending:
            known = self._free_memory.get(gpu.uuid)
            room = min(room, memory_beside(gpu.memory, max(0, self._free[gpu.uuid])) if known is None else known)
        return max(0, room if most is None else min(room, most))

    def _left(self, gpu: Gpu, without: str) -> int:
        return free_memory(gpu.memory, self._held[gpu.uuid], self._memory[gpu.uuid], without)

    def _bytes_held(self, pod: PodState, gpu: Gpu) -> int:
        recorded = self._memory[gpu.uuid].get(pod.uid)
        return recorded.booked(gpu.memory) if recorded else part(gpu.memory, self._held[gpu.uuid].get(pod.uid, 0))

    def _give(self, pod: PodState, shares: tuple[GpuShare, ...]) -> None:
        """Note the new shares of a pod; what a running one loses stays held until its node has closed it."""
        before = self.shares[pod.uid]
        if shares == before:
            return
        self.shares[pod.uid] = shares
        after = None if pod.pending else pod.with_shares(shares)
        held = after.held if after else {share.uuid: share.milli for share in shares}
        memory = after.held_memory if after else of_shares(shares)
        for uuid in {share.uuid for share in (*before, *shares)}:
            self._held[uuid][pod.uid] = held.get(uuid, 0)
            self._note_memory(uuid, pod.uid, memory.get(uuid))

    def _note_memory(self, uuid: str, uid: str, memory: HeldMemory | None) -> None:
        """Note the memory that a pod holds of a GPU; ``None``: no share of it records it."""
        if memory:
            self._memory.setdefault(uuid, {})[uid] = memory
        elif uid in self._memory.get(uuid, ()):
            del self._memory[uuid][uid]


def _by_ticket(pod: PodState) -> tuple[bool, int]:
    """Return the key that sorts pods by ticket; one that has none yet comes last."""
    return (pod.ticket is None, pod.ticket or 0)


def _beside(spot: Spot, others: Sequence[GpuShare]) -> Spot:
    """Return a GPU as a pod would see it beside the shares of other pods alone."""
    left = None
    if any(share.memory for share in others):
        left = spot.gpu.memory - sum(booked(spot.gpu.memory, share.milli, share.memory) for share in others)
    return replace(spot, room=MILLI_PER_GPU - total(others), memory_room=left)


def _present(pod: PodState, gpus: Mapping[str, Gpu]) -> tuple[GpuShare, ...]:
    """Return a pod's shares without those on GPUs that vanished, or that it cannot use; none while it is pending.

    A guest's is not among them: it is given anew in each pass, after all others.
    """
    if pod.pending or not pod.allocated:
        return ()
    return tuple(share for share in pod.allocated.shares if share.uuid in _usable(pod, gpus) and not share.guest)


def _usable(pod: PodState, gpus: Mapping[str, Gpu]) -> Mapping[str, Gpu]:
    """Return the GPUs whose devices the pod's containers have."""
    return {uuid: gpu for uuid, gpu in gpus.items() if uuid not in pod.lacks} if pod.lacks else gpus


def _within(allowance: int | None, shares: Sequence[GpuShare], pod: PodState) -> tuple[GpuShare, ...]:
    """Return as many of the pod's ``shares`` as the allowance permits: closed ones go first, then resting ones."""
    kept, newest_first = list(shares), tuple(reversed(shares))
    for share in sorted(newest_first, key=lambda share: use_class(share.uuid, pod.busy, pod.resting)):
        if allowance is None or total(kept) <= allowance:
            break
        kept.remove(share)
    return tuple(kept)


@dataclass(frozen=True, slots=True)
class Trial:
    """The shares that a pending pod would get on a node now, were it in line there."""

    shares: tuple[GpuShare, ...] = ()
    owed: int = 0
    """Milli that the pod lacks; it starts with all of its wish or not at all."""
    refused: GpuError | None = None
    """Reason why the node can never serve it."""


def trial(snapshot: ClusterSnapshot, pod: PodState, node: str) -> Trial:
    """Return what a pending ``pod`` would get in the line of ``node``, a known one; the limit of the pod is ignored."""
    gpus = snapshot.gpus(node)
    assert gpus is not None, f"{node} is not known"
    ahead = takewhile(lambda other: other.rank < pod.rank, snapshot.nominated(node))  # later pods take nothing
    others = (*snapshot.pods(node), *ahead)
    waiting = replace(pod, node="", allocated=_waiting(pod), attached=None, limit=None, blocked=False, gone=False)
    queue_pass = QueuePass(snapshot, node, gpus, (*(other for other in others if other.uid != pod.uid), waiting))
    queue_pass.serve()
    return Trial(queue_pass.shares[pod.uid], queue_pass.owed.get(pod.uid, 0), queue_pass.refused.get(pod.uid))


def _waiting(pod: PodState) -> Allocated | None:
    return replace(pod.allocated, shares=()) if pod.allocated else None
