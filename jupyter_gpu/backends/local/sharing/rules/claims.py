"""The claims of pods on GPUs, as the records say them, and how far these are trusted. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu_node.shares.rules.apportionment import RankedClaim, apportion, memory_limit
from jupyter_gpu_node.shares.rules.turns.terms import Terms
from jupyter_gpu_node.shares.server import paths

Shares = Mapping[str, Mapping[str, Terms]]
"""By GPU and pod."""


@dataclass(frozen=True, slots=True)
class ShareClaim:
    """A GPU of a pod."""

    pod: str
    gpu: str
    milli: int
    limit: int | None = None
    """Bytes of memory that its programs may have together; None: as many as there are."""


def claims(record: Record) -> tuple[ShareClaim, ...]:
    """List all that the pod may use: what is attached, and what it gave back and its programs still have open.

    The latter go on in their turns until they end. The memory in the wish is meant for each share.
    """
    if record.attached is None or not _is_name(record.uid):
        return ()
    memory = record.requested.wish.memory if record.requested else None
    milli = {item.uuid: item.milli for item in record.attached.draining}
    for share in record.attached.shares:
        milli[share.uuid] = max(share.milli, milli.get(share.uuid, 0))
    return tuple(
        ShareClaim(record.uid, gpu, amount, memory if amount < MILLI_PER_GPU else None)
        for gpu, amount in milli.items()
        if _is_name(gpu)
    )


def _is_name(name: str) -> bool:
    """Tell whether it can be part of a path."""
    try:
        paths.checked(name)
    except ValueError:
        return False
    return True


def served(wanted: Iterable[ShareClaim], before: Shares) -> dict[str, dict[str, Terms]]:
    """Return the shares from now on; those of a GPU are together never above the whole of it.

    Honest records never claim more. False ones harm no pod that was there before: what is served already stays,
    and only what is left of the GPU goes to pods that are new or claim more than ``before``.
    """
    claimed = {(claim.gpu, claim.pod): claim for claim in wanted}
    ranked = (one for claim in claimed.values() for one in _ranked(claim, before.get(claim.gpu, {}).get(claim.pod)))
    return {
        gpu: {pod: Terms(milli, claimed[gpu, pod].limit) for pod, milli in pods.items()}
        for gpu, pods in apportion(ranked).items()
    }


def _ranked(claim: ShareClaim, before: Terms | None) -> tuple[RankedClaim, ...]:
    if before is None:
        return (RankedClaim(claim.gpu, claim.pod, claim.milli, rank=2),)
    kept = min(before.milli, claim.milli)
    return (
        RankedClaim(claim.gpu, claim.pod, kept, rank=0),
        RankedClaim(claim.gpu, claim.pod, claim.milli - kept, rank=1),
    )


def parted(shares: Shares, memory: Mapping[str, int]) -> dict[str, dict[str, Terms]]:
    """Return the shares, none with more of its GPU's ``memory`` (bytes by uuid) than of its time, where known."""
    return {
        gpu: {
            pod: replace(terms, limit=memory_limit(terms.milli, terms.limit, memory.get(gpu), parted=True))
            for pod, terms in pods.items()
        }
        for gpu, pods in shares.items()
    }
