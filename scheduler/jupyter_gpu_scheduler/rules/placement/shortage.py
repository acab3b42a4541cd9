"""Texts for a pod's Event about what a node lacks for a wish: "only 1 of 4 GPUs is free, 2 wanted".

They name no node, so that nodes which lack the same can be counted together. Kubernetes writes their number before the
text, so no text starts with a number.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.demand import wished_bytes
from jupyter_gpu.model.feasible import fits, islands, vendors_without_shares
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU, count_gpus, format_bytes, format_gpus
from jupyter_gpu_scheduler.rules.state.books import memory_beside
from jupyter_gpu_scheduler.rules.state.shape import Shape, ShapeGpu, gpus_of

from .placement import Spot

NO_GPU = "the node has no GPU"
"""Reason for a node whose inventory is empty; its driver may come up later."""
LIMITED = "a limit permits fewer GPUs of a model there"
"""Reason for a node that would have to give more GPUs of a model than the pod's owner may have."""
_JOINED = {"island": "joined by NVLink", "switch": "on one PCIe switch"}


def never(wish: Wish, gpus: Sequence[Gpu]) -> str:
    """Say why a node with ``gpus`` can never serve ``wish``, for a wish it can't serve."""
    if not gpus:
        return NO_GPU
    vendors = sorted({gpu.vendor for gpu in gpus})
    if wish.vendor and not any(fits(gpu, Wish(wish.milli, vendor=wish.vendor), MILLI_PER_GPU) for gpu in gpus):
        return f"no GPU of vendor {wish.vendor}, only {', '.join(vendors)}"
    models = sorted({gpu.model for gpu in gpus})
    if not any(fits(gpu, Wish(wish.milli, model=wish.model), MILLI_PER_GPU) for gpu in gpus):
        return f"no GPU of model {' or '.join(wish.model)}, only {', '.join(models)}"
    if whole := vendors_without_shares(gpus, wish):
        return f"GPUs of vendor {whole} are given as a whole only"
    able = [gpu for gpu in gpus if fits(gpu, wish, wish.pieces[0])]
    if not able:
        return f"no GPU with {format_bytes(wish.memory or 0)} of memory in a share of {count_gpus(wish.pieces[0])}"
    pieces = len(wish.pieces)
    if len(able) < pieces:
        return f"only {len(able)} {_noun(len(able))}{_kind(wish)}, {pieces} wanted"
    most = max(len(group) for group in islands(able, wish.topology))
    if most < pieces:
        return f"at most {most} {_noun(most)}{_kind(wish)} {_JOINED[wish.topology or 'island']}, {pieces} wanted"
    return f"no GPU with {format_bytes(wish.memory or 0)} of memory in a share of {count_gpus(wish.pieces[-1])}"


def now(wish: Wish, shape: Shape) -> str:
    """Say why a node can't serve ``wish`` now, for a wish it could serve if more were free."""
    gpus = gpus_of(shape)
    big, pieces = wish.pieces[0], len(wish.pieces)
    able = [gpu for gpu in gpus if fits(gpu, wish, big)]
    working = [gpu for gpu in able if gpu.healthy]
    free = [gpu for gpu in working if _has_room(shape, gpu, wish, big)]
    broken = len(able) - len(working)
    tail = f" ({broken} {_do(broken)} not work)" if broken else ""
    counted = _counted(free, able, wish)
    if _enough(wish, shape, working, wish.topology):
        return f"what is free is kept for who came first ({counted}){tail}"
    if _enough(wish, shape, working, None):
        return f"no {pieces} free GPUs are {_JOINED[wish.topology or 'island']} ({counted}){tail}"
    if short := _short_of_memory(wish, shape, working):
        return short + tail
    if pieces == 1 and big < MILLI_PER_GPU:
        most = max((shape[gpu.index].free for gpu in working), default=0)
        return f"no GPU{_kind(wish)} has {format_gpus(big)} free, the most is {format_gpus(most)}{tail}"
    few = f"only {counted}" if free else counted
    return f"{few}, {format_gpus(wish.milli) if wish.each is None else pieces} wanted{tail}"


def _has_room(shape: Shape, gpu: Gpu, wish: Wish, milli: int) -> bool:
    there = shape[gpu.index]
    spot = Spot(gpu, there.free, memory_room=there.free_memory)
    return there.free >= milli and spot.has_memory(spot.shared(wish, milli))


def _short_of_memory(wish: Wish, shape: Shape, gpus: Iterable[Gpu]) -> str:
    """Say that a single share lacks nothing but memory; empty where that is not so."""
    big = wish.pieces[0]
    able = [gpu for gpu in gpus if shape[gpu.index].free >= big]
    if len(wish.pieces) > 1 or not able or any(_has_room(shape, gpu, wish, big) for gpu in able):
        return ""
    needs = min(wished_bytes(gpu, wish, big) for gpu in able)
    most = max(_free_memory(shape[gpu.index]) for gpu in able)
    free = f"{format_gpus(big)} free" if big > 1 else "room"
    return f"no GPU with {free} has {format_bytes(needs)} of memory free, the most is {format_bytes(most)}"


def _free_memory(gpu: ShapeGpu) -> int:
    return memory_beside(gpu.memory, gpu.free) if gpu.free_memory is None else max(0, gpu.free_memory)


def _enough(wish: Wish, shape: Shape, gpus: Iterable[Gpu], topology: str | None) -> bool:
    """Tell whether what is free would be enough if no other pod waited for it."""
    big, rest = wish.pieces[0], wish.pieces[-1]
    return any(
        sum(_has_room(shape, gpu, wish, big) for gpu in group) >= wish.pieces.count(big)
        and sum(_has_room(shape, gpu, wish, rest) and fits(gpu, wish, rest) for gpu in group) >= len(wish.pieces)
        for group in islands(gpus, topology)
    )


def _counted(free: Sequence[Gpu], able: Sequence[Gpu], wish: Wish) -> str:
    big = wish.pieces[0]
    what = "free" if big == MILLI_PER_GPU else f"free by {format_gpus(big)}"
    verb = "is" if len(free) < 2 or len(able) == 1 else "are"
    return f"{len(free) or 'none'} of {len(able)} {_noun(len(able))}{_kind(wish)} {verb} {what}"


def _kind(wish: Wish) -> str:
    words = [word for word in (" or ".join(wish.model), wish.vendor) if word]
    if wish.memory:
        words.append(f"{format_bytes(wish.memory)} in each share")
    return f" ({', '.join(words)})" if words else ""


def _noun(count: int) -> str:
    return "GPU" if count == 1 else "GPUs"


def _do(count: int) -> str:
    return "does" if count == 1 else "do"
