"""The amounts that a share has in the books of its GPU: milli of its time, and bytes of its memory. Pure.

A share has the part of the memory that goes with its milli, unless its user names another amount: then the share
records it (`GpuShare.memory`), be it more or less. That holds only on GPUs whose node plugin enforces it (`Gpu.gate`).
A whole GPU has all of the memory, but for a *lendable* one: its owner keeps three quarters, or what the owner names if
that is more, and a guest may have the rest. On each GPU the milli of all pods together are at most 1000, and the bytes
at most its memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from .annotations import Allocated, Attached, Wish, held_shares
from .feasible import GpuProperties
from .gpu import GpuShare
from .quantity import MILLI_PER_GPU

OWNER_KEEPS = 750
"""Thousandths of the memory of a lendable GPU that its owner keeps at least."""


def part(memory: int, milli: int) -> int:
    """Return the bytes that go with ``milli`` of a GPU with so much ``memory``."""
    return memory * milli // MILLI_PER_GPU


def booked(memory: int, milli: int, recorded: int = 0) -> int:
    """Return the bytes that a share has in the books of a GPU with so much ``memory``; ``recorded`` as in a share."""
    return recorded or part(memory, milli)


def share_memory(gpu: GpuProperties, wish: Wish, milli: int) -> int:
    """Return the memory that a share of ``milli`` records for ``wish``; 0: it has its part."""
    if not gpu.gate:
        return 0
    if milli < MILLI_PER_GPU:
        return wish.memory or 0
    keeps = max(wish.memory or 0, part(gpu.memory, OWNER_KEEPS))
    return keeps if wish.lent and keeps < gpu.memory else 0


def wished_bytes(gpu: GpuProperties, wish: Wish, milli: int) -> int:
    """Return the bytes that a share of ``milli`` for ``wish`` would have in the books of ``gpu``."""
    return booked(gpu.memory, milli, share_memory(gpu, wish, milli))


class HeldMemory(NamedTuple):
    """The memory that a pod holds on one GPU, where any of its shares there records it; the larger one counts."""

    milli: int
    """Milli of the largest share that has its part of the memory."""
    recorded: int
    """Bytes of the share that records most."""

    def booked(self, memory: int) -> int:
        """Return the bytes that the pod has in the books of a GPU with so much ``memory``."""
        return max(part(memory, self.milli), self.recorded)

    def covers(self, other: HeldMemory) -> bool:
        """Tell whether this is at least as much, whatever the GPU."""
        return self.milli >= other.milli and self.recorded >= other.recorded


def held_memory(allocated: Allocated | None, attached: Attached | None) -> dict[str, HeldMemory]:
    """Return the memory that a pod holds, by uuid, as `held` does for milli; only where a share records it."""
    shares = held_shares(allocated, attached)
    for share in shares:  # there is none in most pods, and each change of a pod asks
        if share.memory:
            return of_shares(shares)
    return {}


def of_shares(shares: Iterable[GpuShare]) -> dict[str, HeldMemory]:
    """Return the memory that ``shares`` have together, the most by uuid; only where one of them records it."""
    known = tuple(shares)
    names = {share.uuid for share in known if share.memory}
    if not names:
        return {}
    found: dict[str, HeldMemory] = {}
    for share in known:
        if share.uuid in names:
            before = found.get(share.uuid, HeldMemory(0, 0))
            milli = 0 if share.memory else share.milli
            found[share.uuid] = HeldMemory(max(before.milli, milli), max(before.recorded, share.memory))
    return found
