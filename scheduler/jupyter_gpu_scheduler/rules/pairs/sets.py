"""Pure: sets, GPUs that must be on one node because one process uses them (`Wish.set`).

The own node serves a set together with the rest of the wish, so it has as much as the larger of both. Where it can't, a
set goes whole to one other node. There it counts for the rest of the wish, too; but what the notebook has on its own
node it keeps, as far as it wishes GPUs for themselves.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import NamedTuple

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.quantity import MAX_MILLI
from jupyter_gpu.model.service import WorkerPart


class Left(NamedTuple):
    """The amounts of a wish that are left beside the parts on other nodes, in milli."""

    milli: int
    """All of it, whichever node will serve it."""
    here: int
    """The most of it for the own node, if that could ever serve the set; otherwise it is ``rest``."""
    rest: int
    """The same without the set."""


def alone(wish: Wish) -> Wish:
    """Return ``wish`` with the amount that is wished whether or not it is a set.

    Where nothing but the set raises the amount above the base, that is the base: pieces of a set are of no use.
    """
    if wish.set is None or wish.base is None or wish.milli > wish.set:
        return wish
    return replace(wish, milli=wish.base, base=None)


def set_of(wish: Wish) -> int:
    """Return the milli that must be on one node; 0: none. With a topology that is all of a wish with a set."""
    size = wish.set or 0
    return max(size, wish.milli) if size and wish.topology in ("island", "switch") else size


def has_set(parts: Iterable[WorkerPart], wish: Wish) -> bool:
    """Tell whether one of these parts serves the set of ``wish``."""
    size = set_of(wish)
    return bool(size) and any(part.milli >= size for part in parts)


def kept(wish: Wish, has: int) -> int:
    """Return the milli that the own node goes on to serve if the set is on another; it ``has`` so much now."""
    return min(wish.milli, has) if has < set_of(wish) else 0


def left(wish: Wish, parts: Iterable[WorkerPart], has: int) -> Left:
    """Return what is left of ``wish`` beside ``parts`` on other nodes; the own node ``has`` so much now."""
    known = tuple(parts)
    rest, size = max(0, wish.milli - sum(part.milli for part in known)), set_of(wish)
    if not size:
        return Left(rest, rest, rest)
    stays = kept(wish, has)
    if has_set(known, wish):
        rest = max(rest, stays)
        return Left(rest, rest, rest)
    return Left(min(MAX_MILLI, max(rest, stays + size)), max(rest, size), rest)
