"""Apportionment of a GPU among the pods that claim it: never more than the whole. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from jupyter_gpu.model.quantity import MILLI_PER_GPU


@dataclass(frozen=True, slots=True)
class RankedClaim:
    """A pod's claim on a GPU, and its place in the order in which claims are met."""

    gpu: str
    pod: str
    milli: int
    rank: int = 0
    """Claims of a lower rank are met first."""
    order: tuple[str, ...] = ()
    """Sort key of claims of one rank; claims that are equal in it are sorted by the pod's name."""
    divisible: bool = True
    """Whether it is met in part where not all of it fits."""
    guest: bool = False
    """Whether it is a guest's, with 0 milli: it is met last, unless one pod has all of the GPU for itself."""
    lendable: bool = False
    """Whether it leaves memory for a guest, where it is all of the GPU."""


def apportion(claims: Iterable[RankedClaim]) -> dict[str, dict[str, int]]:
    """Return the milli that each pod gets, by GPU and pod; together at most the whole of each GPU.

    Several claims of a pod on one GPU add up. A pod that gets nothing is not in the result, but for guests.
    """
    found: dict[str, dict[str, int]] = {}
    room: dict[str, int] = {}
    lent: set[str] = set()
    for claim in sorted(claims, key=lambda one: (one.gpu, one.guest, one.rank, one.order, one.pod)):
        left = room.get(claim.gpu, MILLI_PER_GPU)
        milli = min(claim.milli, left) if claim.divisible else claim.milli
        alone = MILLI_PER_GPU in found.get(claim.gpu, {}).values() and claim.gpu not in lent
        if claim.guest and not alone:
            found.setdefault(claim.gpu, {}).setdefault(claim.pod, 0)
        elif 0 < milli <= left:
            shares = found.setdefault(claim.gpu, {})
            shares[claim.pod] = shares.get(claim.pod, 0) + milli
            room[claim.gpu] = left - milli
            lent |= {claim.gpu} if claim.lendable else set()
    return found


def memory_limit(milli: int, asked: int | None, memory: int | None, *, parted: bool, recorded: int = 0) -> int | None:
    """Return the bytes of GPU memory that a share may have; None: as much as there is.

    ``asked``: what its user wants at most; ``memory``: that of the GPU, None where it is not known. ``parted``: a share
    gets no more of the memory than of the time, but for one with ``recorded`` bytes in the books: it has these. A whole
    GPU without them is its pod's own.
    """
    if recorded:
        return recorded
    if milli == MILLI_PER_GPU:
        return None
    part = memory * milli // MILLI_PER_GPU if parted and memory else None
    return min((bound for bound in (asked, part) if bound is not None), default=None)
