"""Pure: the memory of one GPU that is free in the books, and what pods have there beyond the whole of it."""

from __future__ import annotations

from collections.abc import Mapping

from jupyter_gpu.model.demand import HeldMemory, part
from jupyter_gpu.model.quantity import MILLI_PER_GPU


def free_memory(memory: int, milli: Mapping[str, int], recorded: Mapping[str, HeldMemory], without: str = "") -> int:
    """Return the bytes of a GPU with so much ``memory`` that no pod has in the books; below 0: they have too much.

    ``milli`` and ``recorded``: what each pod holds there, by uid; ``without``: one that does not count.
    """
    taken = 0
    for uid, held in milli.items():
        if uid != without:
            taken += recorded[uid].booked(memory) if uid in recorded else part(memory, held)
    return memory - taken


def memory_beside(memory: int, free: int) -> int:
    """Return the bytes of a GPU that go with its ``free`` milli, where each pod has the part that goes with its own."""
    return memory - part(memory, MILLI_PER_GPU - free)
