"""What the pods of a node have in their hands, and which of their grants may be carried out now. Pure.

Of what is allocated to a pod only GPUs of this node count. A grant waits for as long as another pod still has, or may
have, that GPU: two pods never have it open at once, whatever the annotations say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU


@dataclass(frozen=True, slots=True)
class Holding:
    """What one pod of this node has in its hands."""

    order: tuple[str, str]
    """Who keeps a GPU that two pods claim to have had before: the lower one. Creation time and uid."""
    has: Mapping[str, int] = field(default_factory=dict)
    """By uuid the milli that the pod may use now: its rules allow it, or it is recorded as attached."""
    drains: Mapping[str, int] = field(default_factory=dict)
    """By uuid the milli that were taken away and are not proven closed."""
    settled: bool = True
    """False: it may have anything, because an earlier process made its rules, or nobody did."""
    open: frozenset[str] = frozenset()
    """Uuids that the rules in force now allow."""

    def claim(self, uuid: str) -> int:
        """How much of that GPU is not free because of this pod."""
        return max(self.has.get(uuid, 0), self.drains.get(uuid, 0))


def permitted(
    shares: Sequence[GpuShare],
    own: Holding,
    others: Iterable[Holding],
    inventory: Collection[str],
    held_back: Collection[str] = (),
) -> tuple[GpuShare, ...]:
    """Those of the allocated ``shares`` that may be open now.

    ``held_back``: GPUs that somebody has open who should not.
    """
    rest = tuple(others)
    return tuple(
        share
        for share in shares
        if share.uuid in inventory
        and (_keeps(share, own, rest) or (share.uuid not in held_back and _may_have(share, rest)))
    )


def _keeps(share: GpuShare, own: Holding, others: Iterable[Holding]) -> bool:
    """Open now, and not for more than before: nothing is opened by that. Of several pods the first ones keep it.

    What is only recorded is no proof: who guarded this pod before may have taken it away and given it to another.
    """
    earlier = sum(other.has.get(share.uuid, 0) for other in others if other.order < own.order)
    had = own.has.get(share.uuid, 0) if share.uuid in own.open else 0
    return share.milli <= had and earlier + share.milli <= MILLI_PER_GPU


def _may_have(share: GpuShare, others: Sequence[Holding]) -> bool:
    taken = sum(other.claim(share.uuid) for other in others)
    return all(other.settled for other in others) and taken + share.milli <= MILLI_PER_GPU
