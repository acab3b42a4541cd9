"""Holdings of a node's pods, and the grants that may be carried out now. Pure.

Only GPUs of this node count. A grant waits for as long as another pod still has, or may have, that GPU: two pods never
have it open at once, whatever the annotations say. Where a share has more of the memory than its part, a grant waits as
well until the other pods hold no more than leaves room for it (`shares.rules.divided_memory`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from jupyter_gpu.model.demand import booked
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.shares.rules.divided_memory import MemoryUse, kept, room


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
    memory: Mapping[str, int] = field(default_factory=dict)
    """Bytes by uuid that what it ``has`` records; where there are none it is the part that goes with its milli."""
    drains_memory: Mapping[str, int] = field(default_factory=dict)
    """Bytes by uuid that what ``drains`` records, in the same way."""

    def claimed_milli(self, uuid: str) -> int:
        """Return how many milli of that GPU are not free because of this pod."""
        return max(self.has.get(uuid, 0), self.drains.get(uuid, 0))

    def claimed_memory(self, uuid: str, memory: int) -> int:
        """Return how many bytes of that GPU, which has so much ``memory``, are not free because of this pod."""
        return max(booked(memory, share.milli, share.memory) for share in self.shares(uuid))

    def shares(self, uuid: str) -> tuple[GpuShare, GpuShare]:
        """Return what it has of that GPU, and what drains there; 0 milli: nothing."""
        return (
            GpuShare(uuid, self.has.get(uuid, 0), self.memory.get(uuid, 0)),
            GpuShare(uuid, self.drains.get(uuid, 0), self.drains_memory.get(uuid, 0)),
        )

    def served(self, uuid: str) -> GpuShare:
        """Return what its programs run on: what it has, else what drains."""
        has, drains = self.shares(uuid)
        return has if uuid in self.has else drains

    def names(self, uuid: str) -> bool:
        """Tell whether it has any of that GPU, or any of it drains; a guest counts, too."""
        return uuid in self.has or uuid in self.drains

    def opened(self, uuid: str) -> GpuShare:
        """Return the share that is open now; 0 milli: none. A record alone is no proof."""
        return self.shares(uuid)[0] if uuid in self.open else GpuShare(uuid, 0)


def permitted(
    shares: Sequence[GpuShare],
    own: Holding,
    others: Iterable[Holding],
    inventory: Collection[str],
    held_back: Collection[str] = (),
    divided: Mapping[str, MemoryUse] = MappingProxyType({}),
) -> tuple[GpuShare, ...]:
    """Return those of the allocated ``shares`` that may be open now.

    ``held_back``: GPUs that are open in a process without a right to them. ``divided``: what is used of the GPUs on
    which a share has more memory than its part. A share that grows there stays as it is until there is room for it.
    """
    rest = tuple(others)
    found = (
        _permitted(share, own, rest, share.uuid in held_back, divided.get(share.uuid))
        for share in shares
        if share.uuid in inventory
    )
    return tuple(share for share in found if share)


def _permitted(
    share: GpuShare, own: Holding, others: Sequence[Holding], held_back: bool, use: MemoryUse | None
) -> GpuShare | None:
    if not _keeps(share, own, others) and (held_back or not _may_have(share, others)):
        return None
    if use is None:
        return share
    known = not held_back and all(other.known for other in others)
    left = room(use, {other.order[1]: other.claimed_memory(share.uuid, use.memory) for other in others}) if known else 0
    return kept(share, own.opened(share.uuid), use.memory, left)


def _keeps(share: GpuShare, own: Holding, others: Iterable[Holding]) -> bool:
    """Tell whether it is open now, for no more than before: nothing new opens. Of several pods the first keep it.

    A record alone is no proof: an earlier guard of this pod may have taken the share away and given it to another.
    """
    if share.uuid not in own.open:
        return False
    earlier = sum(other.has.get(share.uuid, 0) for other in others if other.order < own.order)
    return share.milli <= own.opened(share.uuid).milli and earlier + share.milli <= MILLI_PER_GPU


def _may_have(share: GpuShare, others: Sequence[Holding]) -> bool:
    if share.exclusive and any(other.names(share.uuid) for other in others):
        return False
    taken = sum(other.claimed_milli(share.uuid) for other in others)
    if share.guest and any(one.exclusive for other in others for one in other.shares(share.uuid)):
        return False
    return all(other.known for other in others) and taken + share.milli <= MILLI_PER_GPU
