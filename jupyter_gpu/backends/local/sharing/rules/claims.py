"""The claims of pods on GPUs, as the records say them, and how far these are trusted. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace

from jupyter_gpu.backends.local.records.record import Record
from jupyter_gpu.model.gpu import GpuShare
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
    recorded: bool = False
    """Whether the share has these bytes in the books, be they more than its part."""


def claims(record: Record) -> tuple[ShareClaim, ...]:
    """List all that the pod may use: what is attached, and what it gave back and its programs still have open.

    The latter go on in their turns until they end. The memory in the wish is meant for each share, unless the share
    itself records how much it has.
    """
    if record.attached is None or not _is_name(record.uid):
        return ()
    memory = record.requested.wish.memory if record.requested else None
    found = {item.uuid: item.share for item in record.attached.draining}
    for share in record.attached.shares:
        draining = found.get(share.uuid, share)
        found[share.uuid] = share._replace(milli=max(share.milli, draining.milli))
    return tuple(_claim(record.uid, share, memory) for share in found.values() if _is_name(share.uuid))


def _claim(pod: str, share: GpuShare, asked: int | None) -> ShareClaim:
    if share.exclusive:
        return ShareClaim(pod, share.uuid, share.milli)
    return ShareClaim(pod, share.uuid, share.milli, share.memory or asked, bool(share.memory))


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


def parted(
    shares: Shares, memory: Mapping[str, int], recorded: Collection[tuple[str, str]] = ()
) -> dict[str, dict[str, Terms]]:
    """Return the shares, none with more of its GPU's ``memory`` (bytes by uuid) than of its time, where known.

    Those ``recorded`` in the books, by pod and GPU, stay as they are.
    """
    return {
        gpu: {
            pod: terms
            if (pod, gpu) in recorded
            else replace(terms, limit=memory_limit(terms.milli, terms.limit, memory.get(gpu), parted=True))
            for pod, terms in pods.items()
        }
        for gpu, pods in shares.items()
    }
