"""Shapes: a node's GPUs without their names, so that equal nodes are examined once.

Most nodes of a cluster are in one of a few states. Whatever depends on the shape alone is computed once per shape; and
once for all shapes that differ only in the order of GPUs, switches and islands (`pattern`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from jupyter_gpu.model.demand import part
from jupyter_gpu.model.gpu import NVIDIA, Gpu
from jupyter_gpu.model.quantity import MILLI_PER_GPU

from .fastest import FULL
from .snapshot import ClusterSnapshot


class ShapeGpu(NamedTuple):
    """One GPU of a shape."""

    model: str
    memory: int
    healthy: bool
    island: int | None
    """Number of its NVLink island, counted from the node's first GPU."""
    switch: int | None
    free: int
    """Milli that no pod holds."""
    vendor: str = NVIDIA
    gate: bool = False
    """Whether a share of it may have other memory than its part."""
    free_memory: int | None = None
    """Bytes that no pod has in the books; ``None``: those that go with ``free``.

    They are exact: rounded down, a pod would wait beside room for it.
    """
    slow: bool = False
    """Whether it is given last, as in `Gpu`."""
    priority: int | None = None
    """Its own priority, 0 to 9; ``None``: the settings do not name it."""
    pace: int = FULL
    """Its compute in thousandths of that of the cluster's fastest GPU."""


Shape = tuple[ShapeGpu, ...]
"""The GPUs of a node, by index."""

Grant = tuple[int, int]
"""Index of a GPU in a shape, and the part of it in milli."""


def shape_of(snapshot: ClusterSnapshot, node: str) -> Shape | None:
    """Return the shape of a node now; ``None`` where its inventory is not known."""
    answers = snapshot.memo("shape")
    if node not in answers:
        gpus = snapshot.gpus(node)
        answers[node] = None if gpus is None else _shape(snapshot, node, gpus)
    found: Shape | None = answers[node]
    return found


def free_of(snapshot: ClusterSnapshot, node: str) -> tuple[int, ...]:
    """Return the free milli of each GPU of a known node, by index."""
    answers: dict[str, tuple[int, ...]] = snapshot.memo("free")
    found = answers.get(node)
    if found is None:
        gpus = snapshot.gpus(node) or ()
        found = answers[node] = tuple(snapshot.free(gpu.uuid, node) for gpu in gpus)
    return found


@dataclass(frozen=True, slots=True, eq=False)
class Pattern:
    """A shape in its usual order. Equal ones are the same object, so to look something up by it costs nothing."""

    shape: Shape


@lru_cache(maxsize=32768)
def pattern(shape: Shape) -> Pattern:
    """Return the pattern of a shape: equal GPUs, switches and islands may be swapped, joined ones stay joined."""
    islands = _groups(shape, [gpu.island for gpu in shape])
    switches = _groups(shape, [gpu.switch for gpu in shape])
    order = sorted(
        range(len(shape)), key=lambda index: (islands[index], switches[index], _properties(shape[index]), index)
    )
    names: tuple[dict[int, int], dict[int, int]] = ({}, {})
    return _interned(
        tuple(
            shape[index]._replace(
                island=_renamed(shape[index].island, names[0]), switch=_renamed(shape[index].switch, names[1])
            )
            for index in order
        )
    )


_Properties = tuple[str, str, int, bool, int, bool, bool, bool, bool, int, bool, int, int]


def _properties(gpu: ShapeGpu) -> _Properties:
    left = gpu.free_memory
    memory = (gpu.gate, left is None, left or 0)
    worth = (gpu.slow, -1 if gpu.priority is None else gpu.priority, gpu.pace)
    kind = (gpu.model, gpu.vendor, gpu.memory, gpu.healthy)
    return (*kind, gpu.free, gpu.island is None, gpu.switch is None, *memory, *worth)


def _groups(shape: Shape, numbers: list[int | None]) -> list[tuple[list[_Properties], int]]:
    """Return, for each GPU, the properties of its group and the group's number, which distinguishes equal groups."""
    ids = [-1 - index if number is None else number for index, number in enumerate(numbers)]
    members: dict[int, list[_Properties]] = {}
    for name, gpu in zip(ids, shape, strict=True):
        members.setdefault(name, []).append(_properties(gpu))
    for properties in members.values():
        properties.sort()
    return [(members[name], max(name, -1)) for name in ids]  # GPUs in no group are not distinguished by their indexes


def _renamed(number: int | None, names: dict[int, int]) -> int | None:
    return None if number is None else names.setdefault(number, len(names))


@lru_cache(maxsize=32768)
def _interned(shape: Shape) -> Pattern:
    return Pattern(shape)


def _shape(snapshot: ClusterSnapshot, node: str, gpus: Sequence[Gpu]) -> Shape:
    answers: dict[str, Shape] = snapshot.gpu_memo("empty shape")
    empty = answers.get(node)
    if empty is None:
        empty = answers[node] = _empty(snapshot, gpus)
    free = free_of(snapshot, node)
    memory = tuple(snapshot.free_memory(gpu, node) for gpu in gpus) if snapshot.recorded_memory else None
    return _filled(empty, free, memory)


def _empty(snapshot: ClusterSnapshot, gpus: Iterable[Gpu]) -> Shape:
    """Return the shape of GPUs of which no pod holds anything: it follows from inventories alone."""
    islands: dict[str, int] = {}
    switches: dict[str, int] = {}
    return tuple(
        ShapeGpu(
            gpu.model,
            gpu.memory,
            gpu.healthy,
            None if gpu.island is None else islands.setdefault(gpu.island, len(islands)),
            None if gpu.switch is None else switches.setdefault(gpu.switch, len(switches)),
            MILLI_PER_GPU,
            gpu.vendor,
            gpu.gate,
            slow=gpu.slow,
            priority=snapshot.priority(gpu.uuid),
            pace=snapshot.pace(gpu),
        )
        for gpu in gpus
    )


@lru_cache(maxsize=32768)
def _filled(empty: Shape, free: tuple[int, ...], memory: tuple[int | None, ...] | None) -> Shape:
    """Return the shape with so much free: looked up, as it is needed at each change of a node."""
    left = memory or (None,) * len(free)
    return tuple(
        gpu._replace(free=milli, free_memory=bytes_left)
        for gpu, milli, bytes_left in zip(empty, free, left, strict=True)
    )


@lru_cache(maxsize=8192)
def gpus_of(shape: Shape) -> tuple[Gpu, ...]:
    """Return GPUs of this shape, named by their indexes in it."""
    return tuple(
        Gpu(
            uuid=str(index),
            index=index,
            model=gpu.model,
            memory=gpu.memory,
            healthy=gpu.healthy,
            island=None if gpu.island is None else str(gpu.island),
            switch=None if gpu.switch is None else str(gpu.switch),
            vendor=gpu.vendor,
            slow=gpu.slow,
            gate=gpu.gate,
        )
        for index, gpu in enumerate(shape)
    )


def after(shape: Shape, grants: Iterable[Grant]) -> Shape:
    """Return the shape once ``grants`` are given, each with its part of the memory."""
    gpus = list(shape)
    for index, milli in grants:
        gpu = gpus[index]
        left = None if gpu.free_memory is None else gpu.free_memory - part(gpu.memory, milli)
        gpus[index] = gpu._replace(free=gpu.free - milli, free_memory=left)
    return tuple(gpus)
