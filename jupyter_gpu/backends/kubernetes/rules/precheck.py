"""The refusal, at once, of what can never be granted; pure.

The scheduler decides, and may still refuse what passes here. So where the two could differ, the precheck lets a wish
pass.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import GpuError, Infeasible, LimitExceeded
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU, format_bytes


def refuse(wish: Wish, *, limit: int | None, gpus: Sequence[Gpu] | None) -> GpuError | None:
    """Return the error for a ``wish`` that can't be served even if every GPU were free; ``None`` if it may be.

    ``gpus``: of the pod's node; ``None`` while they are not known.
    """
    if not wish.milli:
        return None
    if limit is not None and wish.milli > limit:
        return LimitExceeded(limit=limit)
    if gpus is None or wish.placement == "any":
        return None
    return _infeasible(wish, gpus)


def _infeasible(wish: Wish, gpus: Sequence[Gpu]) -> Infeasible | None:
    pieces = wish.pieces
    fitting = [gpu for gpu in gpus if _fits(gpu, wish, pieces[0])]
    if len(fitting) >= len(pieces):
        return None
    have = min(wish.milli, len(fitting) * pieces[0])
    if not gpus:
        return Infeasible("The node of this pod has no GPU, so this can never be granted.", have=0)
    if not fitting:
        return Infeasible(
            f"No GPU of this pod's node is what you ask for{_demands(wish)}. Ask for less or for another kind.", have=0
        )
    if wish.each is not None and wish.each < MILLI_PER_GPU:
        return Infeasible(
            f"{len(pieces)} shares are on as many GPUs, and only {len(fitting)} of this pod's node "
            f"fit{_demands(wish)}. Ask for fewer or for larger shares.",
            have=have,
        )
    return Infeasible(have=have)


def _fits(gpu: Gpu, wish: Wish, milli: int) -> bool:
    if wish.memory and gpu.memory * milli < wish.memory * MILLI_PER_GPU:
        return False
    return not wish.model or any(_named(gpu.model, model) for model in wish.model)


def _named(name: str, wished: str) -> bool:
    """Tell whether each word of the wish is somewhere in the name."""
    whole = name.casefold()
    return all(word in whole for word in re.findall(r"[^\W_]+", wished.casefold()))


def _demands(wish: Wish) -> str:
    words = [" or ".join(wish.model)] if wish.model else []
    if wish.memory:
        words.append(f"{format_bytes(wish.memory)} of memory in each share")
    return f" ({', '.join(words)})" if words else ""
