"""Shares that the arbiter of this node serves, from the pods' holdings. Pure.

A pod that may have a GPU open has a share of it, whole GPUs included, as a gate without a server waits. A GPU that
drains counts until it is proven closed, and its programs keep their turns until then, so that they can end in order.
Only a share that was taken away is not served any more, wherever its processes are.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.agent.rules.holdings import Holding
from jupyter_gpu_node.shares.rules.share_file import ShareKey


@dataclass(frozen=True, slots=True)
class TakenShare:
    """A share that was taken away from its pod, until its user asks anew."""

    reason: str
    generation: int | None = None
    """Generation of the decision that gave it; None: the one recorded last."""
    milli: int | None = None
    """Milli that it had; None: not known."""

    def is_in_force(self, uuid: str, allocated: Allocated | None) -> bool:
        """Tell whether ``allocated`` still is the decision that it was taken from."""
        given = {share.uuid: share.milli for share in allocated.shares} if allocated else {}
        if allocated is None or uuid not in given:
            return False
        return self.generation in (None, allocated.observed_generation) and self.milli in (None, given[uuid])


def served(holdings: Mapping[str, Holding], taken: Collection[ShareKey] = ()) -> Mapping[str, Mapping[str, int]]:
    """Return, by GPU and pod, the milli that its programs run on; of one GPU never more than there is.

    ``taken``: GPU and pod of shares that were taken away. Where more is claimed than there is (only records can do
    that, rules never), what rules allow comes first, then what is recorded, then what drains; the rest waits.
    """
    claims: dict[str, list[tuple[int, tuple[str, str], str, int]]] = {}
    for pod, holding in holdings.items():
        for uuid in holding.has.keys() | holding.drains.keys():
            if (uuid, pod) in taken:
                continue
            rank = 2 if uuid not in holding.has else 0 if uuid in holding.open else 1
            milli = holding.has.get(uuid) or holding.drains[uuid]
            claims.setdefault(uuid, []).append((rank, holding.order, pod, milli))
    return {uuid: found for uuid, some in sorted(claims.items()) if (found := _filled(some))}


def _filled(claims: Collection[tuple[int, tuple[str, str], str, int]]) -> dict[str, int]:
    found: dict[str, int] = {}
    room = MILLI_PER_GPU
    for rank, _, pod, claimed in sorted(claims):
        milli = min(claimed, room) if rank == 2 else claimed  # how much of what drains was meant is not always known
        if 0 < milli <= room:
            found[pod] = milli
            room -= milli
    return found


def limit(milli: int, asked: int | None, memory: int | None, *, parted: bool) -> int | None:
    """Return the bytes of GPU memory that a share may have; None: as much as there is.

    ``asked``: what its user wants at most; ``memory``: of the GPU, None where that is not known. ``parted``: a share
    never gets more of the memory than of the time. A whole GPU is its pod's own.
    """
    if milli == MILLI_PER_GPU:
        return None
    part = memory * milli // MILLI_PER_GPU if parted and memory else None
    return min((bound for bound in (asked, part) if bound is not None), default=None)
