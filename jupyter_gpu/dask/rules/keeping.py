"""Pure: whether the results of the last Dask workers can be kept without a GPU, and how they are moved there.

They go to a process of the notebook that has no GPU and takes no tasks (`keeper`), some at a time. What moves is for a
while there twice, so that much memory must be left beside the rest.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence

from jupyter_gpu.model.message import gettext
from jupyter_gpu.model.quantity import format_bytes

BATCH = 64 * 2**20
"""Bytes that are moved at a time, if no result has more."""


def batch(sizes: Mapping[Hashable, int]) -> list[Hashable]:
    """Return the keys that are moved next: as many as fit, but one at least."""
    keys: list[Hashable] = []
    room = BATCH
    for key, size in sizes.items():
        if keys and size > room:
            break
        keys.append(key)
        room -= size
    return keys


def refusal(sizes: Mapping[Hashable, int], actors: int, free: int) -> str:
    """Tell why results of some sizes, or actors, cannot be kept in ``free`` bytes of memory; empty if they can."""
    if actors:
        return gettext("The Dask workers have %1 actors, which cannot be kept without a GPU.", actors)
    total = sum(sizes.values())
    if total + sum(sizes[key] for key in batch(sizes)) > free:
        return gettext(
            "The Dask workers have %1 of results, and %2 of memory is left, which is too little to keep them without a "
            "GPU.",
            format_bytes(total),
            format_bytes(free),
        )
    return ""


def immovable(keys: Sequence[Hashable]) -> str:
    """Tell that results cannot be moved to another process."""
    return gettext(
        "The Dask workers have %1 results that cannot be moved to another process, as %2.", len(keys), str(keys[0])
    )


def unmoved(seconds: float) -> str:
    """Tell that a worker that retires still has results: many, or such that cannot be moved."""
    return gettext(
        "A Dask worker has results that have not moved to others within %1 s. Its GPU is given back once they have, or "
        "once you fetch them and drop their futures.",
        round(seconds),
    )
