"""Wishes that can never be served, and the reasons, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import GpuError, Infeasible, LimitExceeded
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU, count_gpus, format_bytes

from .placement import fits, groups, islands


def refuse(wish: Wish, *, limit: int | None, gpus: Sequence[Gpu]) -> GpuError | None:
    """Return why ``wish`` can't be served by a node with ``gpus``, even if all of them were free; ``None`` if it can.

    ``limit`` is in milli; ``None`` means no limit. GPUs that do not work now count: they may work again.
    A wish for nothing is never refused.
    """
    if not wish.milli:
        return None
    if limit is not None and wish.milli > limit:
        return LimitExceeded(limit=limit)
    if groups(gpus, wish):
        return None
    return _infeasible(wish, gpus)


def _infeasible(wish: Wish, gpus: Sequence[Gpu]) -> Infeasible:
    big, rest = wish.pieces[0], wish.pieces[-1]
    fitting = [gpu for gpu in gpus if fits(gpu, wish, big)]
    largest = max((len(group) for group in islands(fitting, wish.topology)), default=0)
    have = min(wish.milli, largest * big)
    if not gpus:
        return Infeasible("There is no GPU here, so this can never be granted.", have=0)
    if not fitting:
        return Infeasible(f"No GPU here is what you ask for{_demands(wish)}. Ask for less or for another kind.", have=0)
    if len(fitting) < len(wish.pieces):
        return Infeasible(_too_few(wish, len(fitting)), have=have)
    if largest < len(wish.pieces):
        joined = "are joined by NVLink" if wish.topology == "island" else "share a PCIe switch"
        text = f"At most {count_gpus(largest * MILLI_PER_GPU)} that fit {joined}. Ask for less, or for any topology."
        return Infeasible(text, have=have)
    text = f"No GPU here has room for a share of {count_gpus(rest)} with{_demands(wish)}. Ask for whole GPUs."
    return Infeasible(text, have=wish.milli - rest)


def _too_few(wish: Wish, count: int) -> str:
    """Explain a lack of fitting GPUs; empty where the usual sentence says it."""
    if wish.each is None or wish.each == MILLI_PER_GPU:
        return ""
    return (
        f"{len(wish.pieces)} shares are on as many GPUs, and only {count} GPUs fit{_demands(wish)}. "
        "Ask for fewer or for larger shares."
    )


def _demands(wish: Wish) -> str:
    words = [" or ".join(wish.model)] if wish.model else []
    if wish.memory:
        words.append(f"{format_bytes(wish.memory)} of memory in each share")
    return f" ({', '.join(words)})" if words else ""
