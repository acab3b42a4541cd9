"""The part of a wish that an allowance permits.

Kind, topology and the order in line stay as they were wished; only the amount becomes less:

* Where the user chose the size of the shares (``each``), as many of them as fit into the allowance. None is cut, so
  ``each=0.5`` gets nothing of an allowance of 0.3: a smaller share was not asked for.
* Where each share needs memory, its size matters too: as many of the wished shares as fit, largest first.
* Otherwise the amount is that of the allowance, as if the user had asked for it: of three GPUs, 2.5 are two and a half;
  of a half, 0.3 is a smaller share.

A wish for one island or switch stays one, of fewer GPUs: what fits there with three fits there with two.
"""

from __future__ import annotations

from dataclasses import replace
from functools import lru_cache

from jupyter_gpu.model.annotations import Wish


def permitted(wish: Wish, allowance: int) -> Wish:
    """Return ``wish`` with an amount of at most ``allowance`` milli; itself where it is within that."""
    return wish if wish.milli <= allowance else _cut(wish, allowance)


@lru_cache(maxsize=4096)
def _cut(wish: Wish, allowance: int) -> Wish:
    if wish.each or not wish.memory:
        return with_amount(wish, allowance)
    amount = 0
    for piece in wish.pieces:
        amount += piece if amount + piece <= allowance else 0
    return with_amount(wish, amount)


def with_amount(wish: Wish, milli: int) -> Wish:
    """Return ``wish`` with another amount, and without a set: as many whole shares of its size as that has."""
    milli -= milli % (wish.each or 1)
    base = wish.base if wish.base is not None and wish.base < milli else None
    return replace(wish, milli=milli, base=base, set=None)
