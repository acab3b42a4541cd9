"""Wishes that can never be served, however much comes free: the server and the scheduler refuse them at once.

A GPU *fits* a share if it is of the vendor and of a model wished, and the share of its memory is enough: its part, or
up to all of it where the node enforces what a share has in the books (`demand`). GPUs of other vendors than NVIDIA fit
whole shares only. A wish for an ``island`` or a ``switch`` is a demand: all shares on one.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Protocol

from .annotations import Wish
from .errors import GpuError, Infeasible, LimitExceeded
from .gpu import NVIDIA, Gpu
from .quantity import MILLI_PER_GPU, count_gpus, format_bytes


class GpuProperties(Protocol):
    """The properties of a GPU that a wish may ask for."""

    @property
    def model(self) -> str:
        """Its name."""

    @property
    def memory(self) -> int:
        """Bytes."""

    @property
    def vendor(self) -> str:
        """Its maker, in lower case."""

    @property
    def gate(self) -> bool:
        """Whether a share of it may have other memory than its part."""


def fits(gpu: GpuProperties, wish: Wish, milli: int) -> bool:
    """Tell whether a share of ``milli`` of ``gpu`` is what ``wish`` asks for, regardless of free room or health.

    A wished model is met by a GPU whose name contains its words, one after the other, in any case: ``a100`` or
    ``A100 SXM4`` by "NVIDIA A100-SXM4-80GB", but ``A10`` is not.
    """
    if milli < MILLI_PER_GPU and gpu.vendor != NVIDIA:
        return False
    if wish.memory and gpu.memory * (MILLI_PER_GPU if gpu.gate else milli) < wish.memory * MILLI_PER_GPU:
        return False
    if wish.vendor and wish.vendor.casefold() != gpu.vendor.casefold():
        return False
    return not wish.model or any(named(gpu.model, model) for model in wish.model)


@lru_cache(maxsize=4096)
def named(name: str, wished: str) -> bool:
    """Tell whether the words of ``wished`` stand one after the other in ``name``, in any case."""
    words, sought = (re.findall(r"\w+", text.casefold().replace("_", " ")) for text in (name, wished))
    return bool(sought) and any(words[i : i + len(sought)] == sought for i in range(len(words)))


def islands(gpus: Iterable[Gpu], topology: str | None) -> list[list[Gpu]]:
    """Return ``gpus`` in groups, one of which must serve the whole wish; all in one if no topology is wished."""
    found: dict[tuple[str, str], list[Gpu]] = {}
    for gpu in gpus:
        word = topology_group(gpu, topology) if topology in ("island", "switch") else ("all", "")
        found.setdefault(word, []).append(gpu)
    return list(found.values())


def topology_group(gpu: Gpu, level: str | None) -> tuple[str, str]:
    """Return a key of the island of ``gpu``, or of its switch; a GPU that is joined to no other has its own."""
    word = gpu.island if level == "island" else gpu.switch
    return ("gpu", gpu.uuid) if word is None else ("group", word)


def groups(gpus: Iterable[Gpu], wish: Wish) -> list[list[Gpu]]:
    """Return the groups of GPUs that could each serve the whole wish if all were free; none: infeasible."""
    pieces = wish.pieces
    fitting = [gpu for gpu in gpus if fits(gpu, wish, pieces[0])]
    return [
        group
        for group in islands(fitting, wish.topology)
        if len(group) >= len(pieces) and any(fits(gpu, wish, pieces[-1]) for gpu in group)
    ]


def vendors_without_shares(gpus: Iterable[Gpu], wish: Wish) -> str:
    """Return the vendors whose GPUs would fit if ``wish`` were for whole ones; empty if it is not for that reason."""
    vendors = {gpu.vendor for gpu in gpus if fits(gpu, wish, MILLI_PER_GPU)}
    return "" if NVIDIA in vendors or wish.pieces[-1] == MILLI_PER_GPU else " or ".join(sorted(vendors))


def refuse(wish: Wish, *, limit: int | None, gpus: Sequence[Gpu] | None) -> GpuError | None:
    """Return why ``wish`` can't be served by a node with ``gpus``, even if all of them were free; ``None`` if it can.

    ``limit`` is in milli; ``None`` means no limit. ``gpus`` is ``None`` while they are not known: then only the limit
    counts. GPUs that do not work now count: they may work again. A wish for nothing is never refused.
    """
    if not wish.milli:
        return None
    if limit is not None and wish.milli > limit:
        return LimitExceeded(limit=limit)
    if gpus is None or groups(gpus, wish):
        return None
    return _infeasible(wish, gpus)


def _infeasible(wish: Wish, gpus: Sequence[Gpu]) -> Infeasible:
    big, rest = wish.pieces[0], wish.pieces[-1]
    fitting = [gpu for gpu in gpus if fits(gpu, wish, big)]
    largest = max((len(group) for group in islands(fitting, wish.topology)), default=0)
    have = min(wish.milli, largest * big)
    if not gpus:
        return Infeasible("There is no GPU here, so this can never be granted.", have=0)
    if vendors := vendors_without_shares(gpus, wish):
        text = f"GPUs of vendor {vendors} are given as a whole only. Ask for whole GPUs."
        return Infeasible(text, have=min(have, wish.milli - rest))
    if not fitting and any(fits(replace(gpu, gate=True), wish, big) for gpu in gpus):
        part = f"Memory is not enforced here, so a share of {count_gpus(big)} has no more of it than its part"
        return Infeasible(f"{part}{_demands(wish)}. Ask for a larger share, or for less memory.", have=0)
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
    """Explain that too few GPUs fit; empty if the error's own sentence is enough."""
    if wish.each is None or wish.each == MILLI_PER_GPU:
        return ""
    return (
        f"{len(wish.pieces)} shares are on as many GPUs, and only {count} GPUs fit{_demands(wish)}. "
        "Ask for fewer or for larger shares."
    )


def _demands(wish: Wish) -> str:
    words = [word for word in (" or ".join(wish.model), wish.vendor) if word]
    if wish.memory:
        words.append(f"{format_bytes(wish.memory)} of memory in each share")
    return f" ({', '.join(words)})" if words else ""
