"""Claims of one owner's pods on one limited quantity: GPUs, GPUs of a model, or GPU memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass

from jupyter_gpu_scheduler.rules.state.line import Rank
from jupyter_gpu_scheduler.rules.state.snapshot import PodState

Measure = Callable[[PodState, str, int], int]
"""Returns the amount of the quantity in a share: of this pod, on this GPU, of so many milli."""


@dataclass(frozen=True, slots=True)
class Claim:
    """One pod's part of a quantity; amounts in the quantity's own unit."""

    uid: str
    shares: tuple[tuple[str, int], ...]
    """Allocated shares: uuid and amount, oldest first."""
    holds: int
    """Amount allocated, attached or draining."""
    wished: int
    """Amount that its user wishes in all."""
    order: tuple[bool, Rank]
    """Sorts the pods of the owner, the first to have more first: by priority, ticket and age. Not by the rank in a fair
    line, which follows from the answer: then two pods could give way to each other for ever."""
    created: float = 0.0
    busy: frozenset[str] = frozenset()
    leaving: bool = False
    """Whether the pod is being deleted: it gets nothing more, and its end frees what it has."""

    @property
    def has(self) -> int:
        """Amount allocated to it in all."""
        return sum(amount for _, amount in self.shares)


def claims(
    pods: Collection[PodState],
    last: Collection[str] = (),
    measure: Measure = lambda _, __, milli: milli,
    wished: Callable[[PodState], int] = lambda pod: pod.wished,
) -> tuple[Claim, ...]:
    """Return the claims of one owner's pods on a quantity: as it stands, on milli of GPUs.

    ``last``: the uids of pods that could use nothing more now.
    """
    return tuple(
        Claim(
            uid=pod.uid,
            shares=tuple(_allocated(pod, measure)),
            holds=sum(measure(pod, uuid, milli) for uuid, milli in pod.held.items()),
            wished=0 if pod.fault or pod.gone else wished(pod),
            order=(pod.uid in last, pod.ranked(None, 0)),
            created=pod.created,
            busy=pod.busy,
            leaving=pod.gone,
        )
        for pod in pods
    )


def _allocated(pod: PodState, measure: Measure) -> Iterator[tuple[str, int]]:
    for share in pod.allocated.shares if pod.allocated and pod.has else ():
        amount = measure(pod, share.uuid, share.milli)
        if amount:
            yield share.uuid, amount
