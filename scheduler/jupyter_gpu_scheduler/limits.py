"""Which wishes can never be served, and why, in plain words."""

from __future__ import annotations

from collections.abc import Sequence

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import GpuError, Infeasible, LimitExceeded
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU, format_bytes, format_gpus

from .placement import fits, groups, islands


def refuse(wish: Wish, *, limit: int | None, gpus: Sequence[Gpu]) -> GpuError | None:
    """Why ``wish`` can't be served by a node with ``gpus``, even if all of them were free; ``None`` if it can.

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
    fitting = [gpu for gpu in gpus if fits(gpu, wish, wish.pieces[0])]
    largest = max((len(group) for group in islands(fitting, wish.topology)), default=0)
    have = min(wish.milli, largest * wish.pieces[0])
    if not fitting:
        text = f"No GPU here fits{_demands(wish)}. Ask for less or for another kind."
    elif len(fitting) >= len(wish.pieces) > largest:
        together = "are joined by NVLink" if wish.topology == "island" else "share a PCIe switch"
        text = f"At most {largest} GPUs that fit {together}, so this can never be granted. Ask for less."
    elif len(fitting) < len(wish.pieces) and wish.each and wish.each < MILLI_PER_GPU:
        text = (
            f"{len(wish.pieces)} shares need as many GPUs, and there are only {len(fitting)} that fit, "
            "so this can never be granted. Ask for fewer or larger shares."
        )
    elif len(fitting) < len(wish.pieces):
        return Infeasible(have=have)
    else:
        text = (
            f"No GPU has enough memory for the share of {format_gpus(wish.pieces[-1])}{_demands(wish)}. Ask for less."
        )
    return Infeasible(text, have=have)


def _demands(wish: Wish) -> str:
    words = [" or ".join(wish.model)] if wish.model else []
    if wish.memory:
        words.append(f"{format_bytes(wish.memory)} of memory in each share")
    return f" ({', '.join(words)})" if words else ""
