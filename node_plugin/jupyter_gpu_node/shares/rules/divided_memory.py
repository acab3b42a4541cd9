"""The memory of a GPU on which some share has more of it than its part: a *divided* GPU. Pure.

What such a share has beyond its part, others have less, or do not use. So on a divided GPU every share is limited to
what it has in the books (`jupyter_gpu.model.demand`), and a share that comes or grows waits until the memory that the
others hold leaves room for it: a running program keeps what it has, also above a limit that was lowered.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from jupyter_gpu.model.demand import booked, part
from jupyter_gpu.model.gpu import GpuShare


class MemoryUse(NamedTuple):
    """The memory of one divided GPU, and what its pods hold of it."""

    memory: int
    """Bytes that the GPU has."""
    used: Mapping[str, int]
    """Bytes that the programs of each pod reported or hold according to the driver; a pod without them is unknown."""


def is_divided(memory: int, shares: Iterable[GpuShare]) -> bool:
    """Tell whether any of the ``shares`` of a GPU with so much ``memory`` has more of it than its part."""
    return any(share.memory > part(memory, share.milli) for share in shares if not share.exclusive)


def room(use: MemoryUse, booked_bytes: Mapping[str, int]) -> int:
    """Return the bytes that are left beside other pods, given what these have in the books.

    Each counts for the more of what it may have and what it holds; for all of the GPU if what it holds is not known.
    """
    return use.memory - sum(
        max(may_have, use.used.get(pod, use.memory)) for pod, may_have in booked_bytes.items() if may_have
    )


def kept(share: GpuShare, before: GpuShare, memory: int, left: int) -> GpuShare | None:
    """Return the part of ``share`` that its pod may have now; None: nothing of that GPU.

    ``before``: what it has open now, 0 milli if nothing. ``left``: bytes that others leave. What does not fit waits,
    and the pod keeps the memory that it has.
    """
    wanted, has = (booked(memory, one.milli, one.memory) for one in (share, before))
    if wanted <= max(has, left):
        return share
    if not before.milli and not before.guest:
        return None
    milli = min(share.milli, before.milli)
    return GpuShare(share.uuid, milli, 0 if has == part(memory, milli) else has)


def limits(memory: int, shares: Mapping[str, GpuShare], decided: Mapping[str, GpuShare]) -> dict[str, int]:
    """Return the bytes that each pod may have of a divided GPU: together never more than there are.

    The less of what it has and of what was ``decided`` for it, as less is given back at once. If records claim more
    than there is, the first of ``shares`` come first.
    """
    found, left = {}, memory
    for pod, share in shares.items():
        both = (share, decided.get(pod, share))
        found[pod] = min(left, *(booked(memory, one.milli, one.memory) for one in both))
        left -= found[pod]
    return found
