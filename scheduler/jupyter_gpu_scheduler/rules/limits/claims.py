"""Claims of one owner's pods on one limited quantity: GPUs, GPUs of a model, or GPU memory."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from operator import attrgetter

from jupyter_gpu.model.demand import HeldMemory, of_shares
from jupyter_gpu_scheduler.rules.state.line import Rank
from jupyter_gpu_scheduler.rules.state.pod_state import PodState

Measure = Callable[[PodState, str, int, HeldMemory | None], int]
"""Returns the amount of the quantity in a share: of this pod, on this GPU, of so many milli, with this memory where it
is recorded."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One pod's part of a quantity; amounts in the quantity's own unit."""

    uid: str
    shares: tuple[tuple[str, int], ...]
    """Allocated shares: uuid and amount, oldest first."""
    has: int
    """Amount allocated to it in all."""
    holds: int
    """Amount allocated, attached or draining."""
    wished: int
    """Amount that its user wishes in all."""
    order: tuple[bool, bool, Rank]
    """Sorts the pods of the owner, the first to have more first: by priority, ticket and age. Not by the rank in a fair
    line, which follows from the answer: then two pods could give way to each other for ever. Workers come before all
    others: their parts were permitted to their notebooks, and promised."""
    created: float = 0.0
    busy: frozenset[str] = frozenset()
    resting: frozenset[str] = frozenset()
    notebook: str = ""
    """The uid of the pod whose worker it is; empty: it is no worker."""
    leaving: bool = False
    """Whether the pod is being deleted: it gets nothing more, and its end frees what it has."""


def claims(
    pods: Collection[PodState],
    last: Collection[str] = (),
    measure: Measure | None = None,
    wished: Callable[[PodState], int] = lambda pod: pod.wished,
) -> tuple[Claim, ...]:
    """Return the claims of one owner's pods on a quantity; without a measure, on milli of GPUs.

    ``last``: the uids of pods that could use nothing more now.
    """
    return tuple(_claim(pod, pod.uid in last, measure, wished) for pod in pods)


def _claim(pod: PodState, last: bool, measure: Measure | None, wished: Callable[[PodState], int]) -> Claim:
    decided = pod.allocated.shares if pod.allocated and pod.has else ()
    shares = tuple((share.uuid, share.milli) for share in decided)
    holds = pod.holds
    if measure:
        recorded, held = of_shares(decided), pod.held_memory
        amounts = ((uuid, measure(pod, uuid, milli, recorded.get(uuid))) for uuid, milli in shares)
        shares = tuple((uuid, amount) for uuid, amount in amounts if amount)
        holds = sum(measure(pod, uuid, milli, held.get(uuid)) for uuid, milli in pod.held.items())
    return Claim(
        uid=pod.uid,
        shares=shares,
        has=sum(amount for _, amount in shares),
        holds=holds,
        wished=0 if pod.fault or pod.gone else wished(pod),
        order=(last, not pod.notebook, pod.ranked(None, 0) if pod.standing else pod.rank),
        created=pod.created,
        busy=pod.busy,
        resting=pod.resting,
        notebook=pod.notebook,
        leaving=pod.gone,
    )


_READ = attrgetter(
    *("node", "requested", "fault", "gone", "finished", "blocked", "overdue", "cap", "ticket", "created", "notebook"),
    *("busy", "resting", "lacks", "held", "held_memory", "wanted"),
)


def same_claims(before: PodState, after: PodState) -> bool:
    """Tell whether a pod claims the same as ``before``, so that the terms of all pods of its owner stay as they are."""
    shares, now = (pod.allocated.shares if pod.allocated else () for pod in (before, after))
    return shares == now and bool(_READ(before) == _READ(after))
