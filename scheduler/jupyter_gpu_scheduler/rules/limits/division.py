"""Division of an owner's maxima among the owner's pods: of GPUs, of GPUs of a model, and of GPU memory.

Each is divided by itself (`allowances`), and the least part counts. The maximum of a model counts for a pod as a whole
where it can get no other GPUs, else GPU by GPU (`PodState.model_allowances`). Memory is that of the books; it counts as
milli of the largest GPU that the pod can get, and a share that records its memory as a whole.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from types import MappingProxyType

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.demand import HeldMemory, wished_bytes
from jupyter_gpu.model.feasible import fits, named
from jupyter_gpu.model.gpu_kind import GpuKind, gpu_kind
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_scheduler.rules.state.permitted import permitted
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot

from .allowances import allowances, ends_of_sliders, held_by_workers
from .claims import Claim, Measure, claims
from .feasibility import can_use_more
from .giving_back import excess
from .owner_limits import Maximum, OwnerLimits


@dataclass(slots=True)
class PodBound:
    """The least of the parts that one pod has in the maxima."""

    allowance: int | None = None
    """Milli."""
    slider: int | None = None
    """Milli at which its slider ends."""
    maximum: Maximum | None = None
    """The maximum at which it ends, in milli."""
    memory: int | None = None
    """Bytes that the owner's other pods leave, where some GPU that the pod can get has more."""
    models: list[tuple[str, int]] = field(default_factory=list)
    together: PodBound | None = None
    """The end for the pod and its workers as one; ``None``: it has no worker that holds GPUs."""

    def keep(self, milli: int) -> None:
        """Bound the allowance alone: no maximum is the reason."""
        self.allowance = milli if self.allowance is None else min(self.allowance, milli)

    def at_most(self, allowance: int, slider: int, maximum: Maximum) -> None:
        """Take another part into account."""
        self.keep(allowance)
        self.ends_at(slider, maximum)

    def ends_at(self, slider: int, maximum: Maximum) -> None:
        """Take another end of the slider into account."""
        if self.slider is None or slider <= self.slider:
            self.slider, self.maximum = slider, maximum


class Division:
    """The maxima of one owner, with the claims of the pods on each."""

    def __init__(self, snapshot: ClusterSnapshot, pods: Collection[PodState], limits: OwnerLimits) -> None:
        self._snapshot = snapshot
        self._pods = {pod.uid: pod for pod in pods}
        self._limits = limits
        self._workers = _workers(pods)
        last = [pod.uid for pod in pods if _lacks(pod) and not can_use_more(snapshot, pod)]
        such = self._pods.values() if limits.models or limits.memory else ()
        self._obtainable = {pod.uid: self._kinds_for(pod) for pod in such}
        self._counted = {pod.uid: self._obtainable[pod.uid] | self._kinds_held(pod) for pod in such}
        self._models = {word: claims(pods, last, self._of_model(word), self._wished_of(word)) for word in limits.models}
        self._memory = claims(pods, last, self._bytes, self._wished_bytes) if limits.memory else ()
        self._gpus = claims(pods, last) if limits.gpus else ()

    def is_above(self) -> bool:
        """Tell whether the owner has more than any maximum."""
        parts = [(self._models[word], maximum) for word, maximum in self._limits.models.items()]
        parts += [(self._memory, maximum) for maximum in (self._limits.memory,) if maximum]
        parts += [(self._gpus, maximum) for maximum in (self._limits.gpus,) if maximum]
        return any(excess(found, maximum.amount) for found, maximum in parts)

    def bounds(self, *, tolerated: bool, due: Mapping[str, int] = MappingProxyType({})) -> dict[str, PodBound]:
        """Return what the maxima leave for each pod, by uid.

        ``due``: milli that pods must have given back for others by now, by uid; what drains counts for that. A pod from
        which something is reclaimed, due or not, gets nothing more.
        """
        found = {uid: PodBound(together=PodBound() if uid in self._workers else None) for uid in self._pods}
        for word, maximum in self._limits.models.items():
            self._divide_model(found, word, maximum, tolerated)
        if self._limits.memory:
            self._divide_memory(found, self._limits.memory, tolerated)
        if self._limits.gpus:
            self._divide_gpus(found, self._limits.gpus, tolerated)
        for uid in self._limits.reclaimed.keys() & found.keys():
            pod = self._pods[uid]
            lost = due.get(uid, 0)
            found[uid].keep(max(0, min(pod.has, pod.holds - lost)) if lost else pod.has)
        return found

    # --- GPUs ---------------------------------------------------------------------------------------------------------

    def _divide_gpus(self, found: dict[str, PodBound], maximum: Maximum, tolerated: bool) -> None:
        def usable(uid: str, amount: int) -> int:
            pod, bound = self._pods[uid], found[uid].allowance
            amount = amount if bound is None else min(amount, bound)
            return permitted(pod.requested.wish, amount).milli if pod.requested else amount

        parts = allowances(self._gpus, maximum.amount, tolerated=tolerated, usable=usable)
        sliders, together = _ends(self._gpus, maximum.amount)
        for uid, bound in found.items():
            bound.at_most(parts[uid], sliders[uid], maximum)
            if bound.together:
                bound.together.ends_at(together[uid], maximum)

    # --- GPUs of a model ----------------------------------------------------------------------------------------------

    def _divide_model(self, found: dict[str, PodBound], word: str, maximum: Maximum, tolerated: bool) -> None:
        parts = allowances(self._models[word], maximum.amount, tolerated=tolerated)
        sliders, together = _ends(self._models[word], maximum.amount)
        for uid, bound in found.items():
            such = [named(kind.model, word) for kind in self._counted[uid]]
            if such and all(such):
                bound.at_most(parts[uid], sliders[uid], maximum)
            elif any(such):
                bound.models.append((word, parts[uid]))
            if bound.together:
                such = [named(kind.model, word) for kind in self._counted_together(uid)]
                if such and all(such):
                    bound.together.ends_at(together[uid], maximum)

    def _of_model(self, word: str) -> Measure:
        def measure(pod: PodState, uuid: str, milli: int, _recorded: HeldMemory | None) -> int:
            kind = self._kind(pod, uuid)
            return milli if kind is None or named(kind.model, word) else 0  # an unknown one may be such a GPU

        return measure

    def _wished_of(self, word: str) -> Callable[[PodState], int]:
        measure = self._of_model(word)

        def wished(pod: PodState) -> int:
            """Return what a pod has of the model, and what it lacks: that may be of the model, too."""
            such = any(named(kind.model, word) for kind in self._obtainable[pod.uid])
            if not such or not pod.wanted:
                return 0
            decided = pod.allocated.shares if pod.allocated and pod.has else ()
            has = sum(measure(pod, share.uuid, share.milli, None) for share in decided)
            return has + max(0, pod.wanted.milli - pod.has)

        return wished

    # --- memory -------------------------------------------------------------------------------------------------------

    def _divide_memory(self, found: dict[str, PodBound], maximum: Maximum, tolerated: bool) -> None:
        parts = allowances(self._memory, maximum.amount, tolerated=tolerated)
        sliders, together = _ends(self._memory, maximum.amount)
        for claim in self._memory:
            bound = found[claim.uid]
            if bound.together:
                self._end_memory(bound.together, claim.uid, together[claim.uid], maximum)
            largest = self._largest(claim.uid)
            if largest:
                allowance = self._milli(claim, parts[claim.uid], largest)
                slider, whole = self._slider_ends(claim, (sliders[claim.uid], maximum.amount), largest)
                bound.at_most(allowance, slider, Maximum(whole, maximum.source))
                if together[claim.uid] < largest:
                    bound.memory = together[claim.uid]

    def _end_memory(self, bound: PodBound, uid: str, left: int, maximum: Maximum) -> None:
        """Bound a pod and its workers as one by the ``left`` bytes, whichever GPUs of theirs would have the rest."""
        pod, family = self._pods[uid], (uid, *self._workers[uid])
        each, memory = 1, min((kind.memory for kind in self._counted_together(uid)), default=0)
        if pod.requested and self._records_memory(pod):  # whole shares
            least, each = pod.requested.wish.each or 1, pod.requested.wish.each or MILLI_PER_GPU
            memory = self._piece_bytes(pod, least) * MILLI_PER_GPU // each
        if memory:
            more = max(0, left - sum(claim.has for claim in self._memory if claim.uid in family))
            has = sum(self._pods[one].has for one in family)
            most, whole = (
                has + amount * MILLI_PER_GPU // memory // each * each
                for has, amount in ((has, more), (0, maximum.amount))
            )
            bound.ends_at(most, Maximum(max(most, whole), maximum.source))

    def _slider_ends(self, claim: Claim, amounts: tuple[int, int], largest: int) -> tuple[int, int]:
        """Return where the slider of a pod ends with the first number of bytes, and where with all of the maximum."""
        left, maximum = amounts
        if self._records_memory(self._pods[claim.uid]):
            return self._most_milli(claim.uid, left), self._most_milli(claim.uid, maximum)
        return self._milli(claim, left, largest), maximum * MILLI_PER_GPU // largest

    def _milli(self, claim: Claim, amount: int, largest: int) -> int:
        """Return the milli with at most so many bytes, whichever GPUs a pod gets beside those that it has.

        A pod that has some gets whole GPUs, or all that it lacks. Otherwise a share on a GPU with less memory than was
        reckoned with would grow by ever smaller parts.
        """
        pod = self._pods[claim.uid]
        has = pod.has
        if self._records_memory(pod):
            return self._whole_shares(pod, amount)
        if amount >= claim.has:
            more = (amount - claim.has) * MILLI_PER_GPU // largest
            lacks = max(0, pod.wanted.milli - has) if pod.wanted else 0
            return has + (more if not has or more >= lacks else more - more % MILLI_PER_GPU)
        least = min(self._kind_memory(claim.uid, uuid) for uuid, _ in claim.shares)
        return max(0, has - -(-(claim.has - amount) * MILLI_PER_GPU // least))

    def _records_memory(self, pod: PodState) -> bool:
        """Tell whether a share of the pod may record its memory."""
        wish = pod.requested.wish if pod.requested else None
        return bool(wish and wish.memory and any(kind.gate for kind in self._counted[pod.uid]))

    def _whole_shares(self, pod: PodState, amount: int) -> int:
        """Return the milli of as many shares of the wish, the largest first, as have at most so many bytes."""
        pieces = pod.requested.wish.pieces if pod.requested else ()
        used = accumulate(self._piece_bytes(pod, piece) for piece in pieces)
        return sum(piece for piece, bytes_used in zip(pieces, used, strict=True) if bytes_used <= amount)

    def _most_milli(self, uid: str, amount: int) -> int:
        """Return the most milli whose shares, each with the memory that the wish names, have at most so many bytes."""
        pod = self._pods[uid]
        each = pod.requested.wish.each if pod.requested else None
        size = each or MILLI_PER_GPU
        shares, left = divmod(amount, self._piece_bytes(pod, size))
        # Where shares have no size, the rest of an amount is one of its own.
        rest = 0 if each else bisect_right(range(1, size), left, key=partial(self._piece_bytes, pod))
        return shares * size + rest

    def _piece_bytes(self, pod: PodState, piece: int) -> int:
        """Return the most bytes that a share of the pod's wish has in the books of a GPU that it can get or has."""
        wish = pod.requested.wish if pod.requested else Wish(0)
        return max((wished_bytes(kind, wish, piece) for kind in self._counted[pod.uid]), default=0)

    def _bytes(self, pod: PodState, uuid: str, milli: int, recorded: HeldMemory | None) -> int:
        memory = self._kind_memory(pod.uid, uuid)
        return recorded.booked(memory) if recorded else -(-milli * memory // MILLI_PER_GPU)

    def _wished_bytes(self, pod: PodState) -> int:
        if pod.wanted and self._records_memory(pod):
            return sum(self._piece_bytes(pod, piece) for piece in pod.wanted.pieces)
        return -(-pod.wanted.milli * self._largest(pod.uid) // MILLI_PER_GPU) if pod.wanted else 0

    def _kind_memory(self, uid: str, uuid: str) -> int:
        kind = self._kind(self._pods[uid], uuid)
        return kind.memory if kind else self._largest(uid)

    def _largest(self, uid: str) -> int:
        """Return the bytes of the largest GPU that a pod can get or has; 0: it can get none."""
        return max((kind.memory for kind in self._counted[uid]), default=0)

    # --- kinds of GPUs ------------------------------------------------------------------------------------------------

    def _kinds_for(self, pod: PodState) -> frozenset[GpuKind]:
        """Return the kinds of GPUs that a pod can get where it is, or as a worker will be; without a node, anywhere."""
        wish = pod.requested.wish if pod.requested else None
        kinds = self._snapshot.gpu_kinds(pod.node or (pod.nominated if pod.notebook else ""))
        return frozenset(kind for kind in kinds if wish is None or fits(kind, wish, MILLI_PER_GPU))

    def _kinds_held(self, pod: PodState) -> frozenset[GpuKind]:
        """Return the kinds of GPUs that a pod holds. Its user may have written a wish that they do not serve."""
        return frozenset(kind for uuid in pod.held if (kind := self._kind(pod, uuid)))

    def _counted_together(self, uid: str) -> frozenset[GpuKind]:
        """Return the kinds of GPUs that a pod or a worker of it can get or holds."""
        return self._counted[uid].union(*(self._counted[worker] for worker in self._workers[uid]))

    def _kind(self, pod: PodState, uuid: str) -> GpuKind | None:
        """Return the kind of a GPU that a pod holds; ``None`` where the node does not tell it any more."""
        return next((gpu_kind(gpu) for gpu in self._snapshot.gpus(pod.node) or () if gpu.uuid == uuid), None)


def _workers(pods: Collection[PodState]) -> Mapping[str, Collection[str]]:
    """Return the uids of the workers that hold GPUs, by the uid of their notebook."""
    found: dict[str, list[str]] = {}
    for pod in pods:
        if pod.notebook and pod.holds:
            found.setdefault(pod.notebook, []).append(pod.uid)
    return found


def _ends(claims: Collection[Claim], maximum: int) -> tuple[Mapping[str, int], Mapping[str, int]]:
    """Return where sliders end, by uid: of each pod, and of each with its workers."""
    beside = held_by_workers(claims)
    sliders = ends_of_sliders(claims, maximum)
    return sliders, ends_of_sliders(claims, maximum, beside) if beside else sliders


def _lacks(pod: PodState) -> bool:
    return pod.requested is not None and pod.requested.milli > pod.has
