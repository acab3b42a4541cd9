"""Holdings of a node's pods, and the grants that may be carried out now. Pure.

Only GPUs of this node count. A grant waits for as long as another pod still has, or may have, that GPU: two pods never
have it open at once, whatever the annotations say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU


@dataclass(frozen=True, slots=True)
class Holding:
    """The holdings of one pod of this node."""

    order: tuple[str, str]
    """Creation time and uid: of two pods that claim to have had a GPU before, the lower one keeps it."""
    has: Mapping[str, int] = field(default_factory=dict)
    """Milli by uuid that the pod may use now: its rules allow it, or it is recorded as attached."""
    drains: Mapping[str, int] = field(default_factory=dict)
    """Milli by uuid that were taken away and are not proven closed."""
    known: bool = True
    """Whether they are known; else it may have anything: an earlier process made its rules, or none did."""
    open: frozenset[str] = frozenset()
    """UUIDs that the rules in force now allow."""

    def claimed_milli(self, uuid: str) -> int:
        """Return how many milli of that GPU are not free because of this pod."""
        return max(self.has.get(uuid, 0), self.drains.get(uuid, 0))


def permitted(
    shares: Sequence[GpuShare],
    own: Holding,
    others: Iterable[Holding],
    inventory: Collection[str],
    held_back: Collection[str] = (),
) -> tuple[GpuShare, ...]:
    """Return those of the allocated ``shares`` that may be open now.

    ``held_back``: GPUs that are open in a process without a right to them.
    """
    rest = tuple(others)
    return tuple(
        share
        for share in shares
        if share.uuid in inventory
        and (_keeps(share, own, rest) or (share.uuid not in held_back and _may_have(share, rest)))
    )


def _keeps(share: GpuShare, own: Holding, others: Iterable[Holding]) -> bool:
    """Tell whether it is open now, for no more than before: nothing new opens. Of several pods the first keep it.

    A record alone is no proof: an earlier guard of this pod may have taken the share away and given it to another.
    """
    earlier = sum(other.has.get(share.uuid, 0) for other in others if other.order < own.order)
    had = own.has.get(share.uuid, 0) if share.uuid in own.open else 0
    return share.milli <= had and earlier + share.milli <= MILLI_PER_GPU


def _may_have(share: GpuShare, others: Sequence[Holding]) -> bool:
    taken = sum(other.claimed_milli(share.uuid) for other in others)
    return all(other.known for other in others) and taken + share.milli <= MILLI_PER_GPU
