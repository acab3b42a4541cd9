"""Programs of one pod, by their processes: a notebook's or a terminal's, with all that they started. Pure.

Training with one process for each GPU (``torchrun``, ``mpirun``) has a parent that started them. A kernel and a
terminal are children of the Jupyter server, and what is below one of these belongs together. Sessions and process
groups say nothing: some launchers make new ones for each process. What is below no server that is known, as it outlived
its terminal, counts as one program of its pod.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import pairwise

PidAndStart = tuple[int, int]
"""pid and start."""


def program(ancestry: Sequence[PidAndStart], servers: Collection[PidAndStart]) -> PidAndStart | None:
    """Return the process that stands for the first of ``ancestry``: a process, its parent, grandparent and so on.

    That is the last one below a server, or a server itself; None: it is below none.
    """
    if ancestry[0] in servers:
        return ancestry[0]
    return next((child for child, parent in pairwise(ancestry) if parent in servers), None)


def is_on_several(members: Iterable[tuple[PidAndStart | None, Collection[str]]]) -> bool:
    """Tell whether any program is on several GPUs: ``members`` are a pod's processes, by program, and their GPUs."""
    found: dict[PidAndStart | None, set[str]] = {}
    for one, gpus in members:
        found.setdefault(one, set()).update(gpus)
    return any(len(gpus) > 1 for gpus in found.values())
