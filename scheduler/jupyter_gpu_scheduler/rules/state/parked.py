"""Pure: what of a pod is parked, what of its wish is left meanwhile, and what comes back; what could be parked.

A parked GPU is closed and holds nothing. While no program needs it, it is no part of the wish, so the pod stands in no
line for it. Once a program needs it, the pod is served as any other, but with that very GPU: its bundle as a whole, or
nothing of it. A larger wish is served after that.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from functools import lru_cache
from itertools import groupby
from typing import TYPE_CHECKING, NamedTuple

from jupyter_gpu.model.annotations import Attached, Wish
from jupyter_gpu.model.gpu import GpuShare, total

from .permitted import with_amount

if TYPE_CHECKING:  # loaded with the first park
    from jupyter_gpu.model.parking import ParkedShare


class Parkable(NamedTuple):
    """A bundle that may be parked for other pods now."""

    bundle: str
    uuids: frozenset[str]
    """Its GPUs."""
    since: int
    """Seconds since 1970 at which the last of them began to rest."""
    bytes: int
    """Bytes of host memory that it takes."""
    guaranteed: int = 0
    """Milli that are guaranteed to the pod's owner."""


Bundle = tuple[GpuShare, ...]
"""The parked shares of one bundle."""


class ParkedPart(NamedTuple):
    """The part of a pod that is parked, but for what it keeps as swapped."""

    away: frozenset[str]
    """UUIDs of the GPUs that nothing of the pod needs or has: they are closed, whatever ``allocated`` says."""
    asleep: int
    """Milli that are parked there."""
    needed: tuple[Bundle, ...]
    """The bundles that a program waits for, the first parked first."""

    def others(self, shares: Sequence[GpuShare]) -> tuple[GpuShare, ...]:
        """Return those of a pod's ``shares`` that are not parked."""
        return tuple(share for share in shares if share.uuid not in self.away)

    def missing(self, has: Collection[str], room: int) -> tuple[Bundle, ...]:
        """Return what needed bundles lack if a pod ``has`` these GPUs; of bundles that fit into ``room`` milli."""
        had, found = set(has), []
        for bundle in self.needed:
            lacks = tuple(share for share in bundle if share.uuid not in had)
            if lacks and total(lacks) <= room:
                room -= total(lacks)
                had.update(share.uuid for share in lacks)
                found.append(lacks)
        return tuple(found)

    def left_of(self, wish: Wish, shares: Sequence[GpuShare]) -> Wish:
        """Return the wish that counts meanwhile, of a pod that was allocated ``shares``.

        What is attached is given up for nothing that is parked.
        """
        kept = self.others(shares)
        has, most = total(kept), wish.milli - self.asleep
        if self.needed:
            missing = self.missing([share.uuid for share in kept], most - has)
            most = has + sum(map(total, missing))
        milli = min(wish.milli, max(has, most))
        return wish if milli == wish.milli else with_amount(wish, milli)


def parked_part(attached: Attached) -> ParkedPart:
    """Return what is parked of a pod with this ``attached``."""
    return _parked_part(attached.parked, frozenset(share.uuid for share in attached.shares))


@lru_cache(maxsize=1024)
def _parked_part(parked: tuple[ParkedShare, ...], has: frozenset[str]) -> ParkedPart:
    # One item for each GPU of a bundle, whatever a node writes.
    bundles = _bundles({(share.bundle, share.uuid): share for share in parked if not share.kept}.values())
    needed = [bundle for bundle in bundles if any(share.needed for share in bundle)]
    awake = has.union(share.uuid for bundle in needed for share in bundle)
    asleep = [share for bundle in bundles for share in bundle if share.uuid not in awake]
    return ParkedPart(
        away=frozenset(share.uuid for share in asleep),
        asleep=total([share.share for share in asleep]),
        needed=tuple(tuple(share.share for share in bundle) for bundle in needed),
    )


def _bundles(shares: Iterable[ParkedShare]) -> list[tuple[ParkedShare, ...]]:
    """Return shares by bundle, the first parked first."""
    named = sorted(shares, key=lambda share: share.bundle)
    found = [tuple(bundle) for _, bundle in groupby(named, key=lambda share: share.bundle)]
    return sorted(found, key=lambda bundle: min(share.since for share in bundle))
