"""Patterns of shapes: which nodes are looked at as one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.scoring.fragmentation import fragmentation
from jupyter_gpu_scheduler.rules.scoring.policy import Policy
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from jupyter_gpu_scheduler.rules.state.shape import Shape, ShapeGpu, pattern
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, facts, gpu, pod, uuid


def _cell(memory_held: int | None, **fields: Any) -> ShapeGpu:
    """Return a GPU; ``memory_held``: what another pod has in the books there, if it has a share with memory."""
    left = fields["memory"] - memory_held if memory_held and fields["free"] in (250, 500) else None
    return ShapeGpu(**fields, gate=left is not None, free_memory=left)


cells = st.builds(
    _cell,
    memory_held=st.sampled_from([None, None, 10 * GIB, 40 * GIB]),
    model=st.sampled_from(["A100", "H100"]),
    memory=st.sampled_from([40 * GIB, 80 * GIB]),
    healthy=st.sampled_from([True, True, False]),
    island=st.sampled_from([None, 0, 1]),
    switch=st.sampled_from([None, 0, 1, 2]),
    free=st.sampled_from([0, 250, 500, 1000, 1000]),
    slow=st.sampled_from([False, False, True]),
    priority=st.sampled_from([None, None, 0, 9]),
)
shapes = st.lists(cells, max_size=6).map(tuple)
wishes = st.builds(
    Wish,
    milli=st.sampled_from([250, 500, 1000, 1500, 2000, 3000, 3250]),
    memory=st.sampled_from([None, 30 * GIB, 60 * GIB]),
    model=st.sampled_from([(), (), ("A100",)]),
    topology=st.sampled_from([None, "island", "switch"]),
)


def shuffled(shape: Shape, seed: int) -> Shape:
    """Return the same GPUs in another order, with other numbers of islands and switches."""
    chance = random.Random(seed)
    names = chance.sample(range(9), 9)
    cells = [
        cell._replace(
            island=None if cell.island is None else names[cell.island],
            switch=None if cell.switch is None else names[cell.switch],
        )
        for cell in shape
    ]
    chance.shuffle(cells)
    return tuple(cells)


def snapshot_of(shape: Shape) -> ClusterSnapshot:
    """One node n with this shape; what is not free is held by others."""
    named = {uuid(index): cell.priority for index, cell in enumerate(shape) if cell.priority is not None}
    snapshot = ClusterSnapshot(named)
    gpus = tuple(
        gpu(
            index,
            model=cell.model,
            memory=cell.memory,
            healthy=cell.healthy,
            island=None if cell.island is None else f"i{cell.island}",
            switch=None if cell.switch is None else f"s{cell.switch}",
            slow=cell.slow,
            gate=cell.gate,
        )
        for index, cell in enumerate(shape)
    )
    snapshot.put_node("n", gpus, facts())
    for index, cell in enumerate(shape):
        if cell.free < 1000:
            snapshot.put_pod(
                pod(f"other{index}", wants=(1000 - cell.free) / 1000, has={index: 1000 - cell.free}, node="n")
            )
    return snapshot


@given(shapes)
def test_pattern_keeps_gpus_and_groups(shape: Shape) -> None:
    """A pattern has the same GPUs, as many of each kind in as many groups; asked again it is the same object."""
    found = pattern(shape)
    unnamed = Counter(cell._replace(island=None, switch=None) for cell in shape)
    assert Counter(cell._replace(island=None, switch=None) for cell in found.shape) == unnamed
    for level in ("island", "switch"):
        sizes = [sorted(_sizes(one, level)) for one in (shape, found.shape)]
        assert sizes[0] == sizes[1]
    assert pattern(shape) is found
    assert pattern(found.shape) is found


def test_slow_and_preferred_gpus_have_patterns_of_their_own() -> None:
    """But it does not matter which of two equal GPUs it is."""
    plain = ShapeGpu("m", 1, True, None, None, 1000)
    for other in (plain._replace(slow=True), plain._replace(priority=0)):
        assert pattern((plain, other)) is pattern((other, plain))
        assert pattern((plain, other)) is not pattern((plain, plain))


def _sizes(shape: Shape, level: str) -> list[int]:
    names = [getattr(cell, level) for cell in shape if getattr(cell, level) is not None]
    return [names.count(name) for name in set(names)]


def test_equal_gpus_and_islands_may_change_places() -> None:
    """One busy island gives the same pattern on whichever side it is; two joined GPUs are not two alone."""
    busy, free = ShapeGpu("m", 1, True, 0, None, 0), ShapeGpu("m", 1, True, 0, None, 1000)
    left = (busy, busy, free._replace(island=1), free._replace(island=1))
    right = (free, free, busy._replace(island=1), busy._replace(island=1))
    mixed = (busy, free, busy._replace(island=1), free._replace(island=1))
    assert pattern(left) is pattern(right)
    assert pattern(left) is not pattern(mixed)
    assert pattern((free, busy._replace(vendor="amd"))) is not pattern((free._replace(vendor="amd"), busy))
    assert pattern((free, free)) is not pattern((free, free._replace(island=1)))


@given(shapes, wishes, st.integers(0, 99))
def test_order_of_gpus_never_decides_whether_a_wish_fits(shape: Shape, wish: Wish, seed: int) -> None:
    """The fit of one node holds for all nodes of its pattern, and each node can grant it."""
    me = PodState("me", requested=Requested(1, wish))
    answers = []
    for one in (shape, shuffled(shape, seed)):
        snapshot = snapshot_of(one)
        found = filter_nodes(snapshot, me, ("n",))
        granted = allocate(snapshot, me, "n")
        assert bool(found.fitting) == (not isinstance(granted, Exception))
        answers.append((found.fitting, set(found.failed.values()), set(found.never.values())))
    assert answers[0] == answers[1]


@given(shapes, st.integers(0, 99))
def test_order_of_gpus_never_changes_fragmentation(shape: Shape, seed: int) -> None:
    """FGD's measure depends on the pattern alone."""
    policy = Policy()
    assert fragmentation(policy, shape) == fragmentation(policy, shuffled(shape, seed))
