"""What a node's GPUs look like to somebody who wants some: without names, so that equal nodes are looked at once.

Most nodes of a cluster are in one of a few states. Whatever depends on the shape alone is computed once per shape.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache
from typing import NamedTuple

from jupyter_gpu.model.gpu import Gpu

from .snapshot import ClusterSnapshot


class Cell(NamedTuple):
    """One GPU of a shape."""

    model: str
    memory: int
    healthy: bool
    island: int | None
    """Number of its NVLink island, counted from the node's first GPU."""
    switch: int | None
    free: int
    """Milli that nobody holds."""


Shape = tuple[Cell, ...]
"""The GPUs of a node, by index."""

Grant = tuple[int, int]
"""Which GPU of a shape, and how much of it in milli."""


def shape_of(snapshot: ClusterSnapshot, node: str) -> Shape | None:
    """The shape of a node now; ``None`` where its inventory is not known."""
    answers = snapshot.memo("shape")
    if node not in answers:
        gpus = snapshot.gpus(node)
        answers[node] = None if gpus is None else _shape(gpus, [snapshot.free(gpu.uuid) for gpu in gpus])
    found: Shape | None = answers[node]
    return found


def _shape(gpus: Iterable[Gpu], free: Iterable[int]) -> Shape:
    islands: dict[str, int] = {}
    switches: dict[str, int] = {}
    return tuple(
        Cell(
            gpu.model,
            gpu.memory,
            gpu.healthy,
            None if gpu.island is None else islands.setdefault(gpu.island, len(islands)),
            None if gpu.switch is None else switches.setdefault(gpu.switch, len(switches)),
            milli,
        )
        for gpu, milli in zip(gpus, free, strict=True)
    )


@lru_cache(maxsize=8192)
def gpus_of(shape: Shape) -> tuple[Gpu, ...]:
    """GPUs of this shape, named by their places in it."""
    return tuple(
        Gpu(
            uuid=str(index),
            index=index,
            model=cell.model,
            memory=cell.memory,
            healthy=cell.healthy,
            island=None if cell.island is None else str(cell.island),
            switch=None if cell.switch is None else str(cell.switch),
        )
        for index, cell in enumerate(shape)
    )


def after(shape: Shape, grants: Iterable[Grant]) -> Shape:
    """The shape once ``grants`` are given."""
    cells = list(shape)
    for index, milli in grants:
        cells[index] = cells[index]._replace(free=cells[index].free - milli)
    return tuple(cells)
