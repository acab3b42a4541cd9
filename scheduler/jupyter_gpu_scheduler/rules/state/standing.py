"""The standing of an owner in a fair line: it decides between waiting pods of different owners.

An owner who stays within what is guaranteed comes first, then one who is below it and gets beyond it by the next step,
and a preemptible wish last; then the higher priority; then the owner who would have least for the weight: ``(holds +
step) / weight`` over the whole cluster, where ``step`` is the next part of the wish; then the earlier ticket. This is
the D'Hondt method: by ``holds / weight`` an owner with a large weight could be left with nothing.

A wish is served in steps of one GPU, or of the size of its shares. What is served as a whole is one step: a new pod,
and a wish for one island or switch.
"""

from __future__ import annotations

from dataclasses import dataclass

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.quantity import MILLI_PER_GPU

MAX_WEIGHT = 1000
_SCALE = MAX_WEIGHT**2


def share(milli: int, weight: int) -> int:
    """Return ``milli / weight`` as a whole number that sorts like it: in millionths, rounded down.

    Two such fractions are equal, or differ by a millionth at least, as no weight is above `MAX_WEIGHT`. So nothing is
    lost by rounding, and whole numbers are compared, which is many times faster.
    """
    return milli * _SCALE // weight


@dataclass(frozen=True, slots=True)
class OwnerStanding:
    """The GPUs that an owner holds in the whole cluster, and the owner's claims; amounts in milli."""

    holds: int = 0
    guaranteed: int = 0
    weight: int = 1

    def order(self, priority: int, step: int, *, last: bool = False) -> tuple[int, int, int]:
        """Return the key that sorts wishes of this owner and of others, for the next ``step``; least first.

        ``last``: above what is guaranteed, it comes after all that are not last.
        """
        within = self.holds + step <= self.guaranteed
        precedence = -1 - within if self.holds < self.guaranteed or within else int(last)
        return (precedence, -priority, share(self.holds + step, self.weight))


def next_amount(wish: Wish, has: int, *, whole: bool) -> int:
    """Return the milli up to which a pod with ``has`` milli is served next; ``whole``: only all of it helps."""
    if whole or has >= wish.milli or wish.topology in ("island", "switch"):
        return wish.milli
    size = wish.each or MILLI_PER_GPU
    return min(wish.milli, (has // size + 1) * size)
