"""The GPUs that serve a wish: islands, and the least change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.use_class import UseClass
from jupyter_gpu_scheduler.rules.placement.placement import Spot, arrange, choose
from tests.builders import GIB, inventory, uuid, wish


def spots(gpus: tuple[Gpu, ...], free: dict[int, int], held: dict[int, int] | None = None) -> list[Spot]:
    """Return the spots for a pod that has nothing; ``free`` and ``held`` by index, 1000 and 0 where not given."""
    return [Spot(gpu, free.get(gpu.index, 1000), (held or {}).get(gpu.index, 0)) for gpu in gpus]


@pytest.mark.parametrize(
    ("size", "count", "free", "held", "expected"),
    [
        pytest.param(1000, 2, {}, {}, [0, 1], id="one switch"),
        pytest.param(1000, 2, {0: 0}, {}, [2, 3], id="one switch that is free"),
        pytest.param(1000, 1, {0: 0}, {}, [1], id="what is left of a broken switch"),
        pytest.param(1000, 4, {0: 0}, {}, [4, 5, 6, 7], id="one island"),
        pytest.param(1000, 3, {4: 0}, {}, [5, 6, 7], id="the island that has just enough"),
        pytest.param(1000, 5, {0: 0}, {}, [4, 5, 6, 7, 1], id="as few islands as possible"),
        pytest.param(1000, 9, {0: 500}, {}, [1, 2, 3, 4, 5, 6, 7], id="all there is"),
        pytest.param(1000, 2, {}, {5: 1000}, [5, 4], id="what it still holds, and next to it"),
        pytest.param(500, 1, {6: 500, 7: 750}, {}, [6], id="a part where the least is left"),
        pytest.param(600, 1, {6: 500, 7: 750}, {}, [7], id="a part where there is room"),
        pytest.param(500, 1, {6: 500}, {3: 500}, [3], id="a part that it still holds"),
        pytest.param(500, 2, {0: 500, 3: 500}, {}, [0, 1], id="several parts close together"),
        pytest.param(500, 0, {}, {}, [], id="nothing"),
    ],
)
def test_choose_takes_gpus_that_belong_together(
    size: int, count: int, free: dict[int, int], held: dict[int, int], expected: list[int]
) -> None:
    """Among eight GPUs in islands of four and switches of two, GPUs near each other are chosen."""
    eight = inventory(8, island=4, switch=2)
    assert [spot.gpu.index for spot in choose(spots(eight, free, held), size, count)] == expected


def test_choose_near_the_others() -> None:
    """A new share goes to the island, then to the switch of those that are there."""
    eight = inventory(8, island=4, switch=2)
    assert [spot.gpu.index for spot in choose(spots(eight[:6], {5: 0}), 1000, 1, near=eight[5:6])] == [4]
    assert [spot.gpu.index for spot in choose(spots(eight[:4], {}), 1000, 2, near=eight[6:])] == [0, 1]
    assert [spot.gpu.index for spot in choose(spots(eight, {6: 0, 7: 0}), 1000, 3, near=eight[6:])] == [4, 5, 0]


def test_choose_never_takes_a_broken_gpu() -> None:
    """Nor does it take one with too little memory before one that has less room but enough memory."""
    three = inventory(3, unhealthy=[0], memory=[80, 80, 40])
    assert [spot.gpu.index for spot in choose(spots(three, {}), 1000, 3)] == [2, 1]


def test_arrange_keeps_large_memory_for_the_share_that_needs_it() -> None:
    """The half needs 40 GiB, which only a half of GPU 0 has; the whole one may be any."""
    two = inventory(2, memory=[80, 40])
    found = arrange(wish(1.5, memory=40 * GIB), spots(two, {}))
    assert {share.uuid: share.milli for share in found.shares} == {uuid(1): 1000, uuid(0): 500}
    found = arrange(wish(1.5, memory=40 * GIB), spots(two, {}, held={0: 1000}))
    assert {share.uuid: share.milli for share in found.shares} == {uuid(0): 500, uuid(1): 1000}
    alike = inventory(3, memory=[80, 40, 80])
    found = arrange(wish(1.5, memory=40 * GIB), spots(alike, {1: 0, 2: 500}))
    assert {share.uuid: share.milli for share in found.shares} == {uuid(0): 1000, uuid(2): 500}


def test_arrange_returns_the_gpus_it_waits_for() -> None:
    """Everything that fits, on every island that is large enough."""
    five = inventory(5, island=2)
    found = arrange(wish(2, topology="island"), spots(five, dict.fromkeys(range(5), 0)))
    assert (found.shares, found.owed) == ((), 2000)
    assert found.wanted == {uuid(index) for index in range(4)}
    assert arrange(wish(0), spots(five, {})).shares == ()


@pytest.mark.parametrize(
    ("use", "expected"),
    [
        (UseClass.CLOSED, {0: 1000, 2: 500}),
        (UseClass.RESTING, {0: 500, 1: 500}),
        (UseClass.WORKING, {0: 500, 1: 500}),
    ],
)
def test_arrange_gives_a_closed_share_back_that_is_in_the_way(use: UseClass, expected: dict[int, int]) -> None:
    """It is too small in memory as a half, and has no room to be the whole; an open one waits where it is."""
    large, small, other = inventory(3, memory=(80, 40, 80))
    has = [
        Spot(large, 1000, held=1000, share=1000, age=0),
        Spot(small, 500, held=500, share=500, age=1, use=use),
        Spot(other, 500),
    ]
    found = arrange(wish(1.5, memory=30 * GIB), has)
    assert {share.uuid: share.milli for share in found.shares} == {uuid(n): milli for n, milli in expected.items()}


@pytest.mark.parametrize("place", [0, 1, 2])
def test_arrange_gives_a_resting_share_back_before_one_that_works(place: int) -> None:
    """A closed one goes before it, wherever they are; of two that rest the newest goes."""
    gpus = inventory(3)
    uses = [UseClass.WORKING, UseClass.WORKING, UseClass.WORKING]
    uses[place] = UseClass.RESTING
    has = [Spot(gpu, 1000, 1000, 1000, age, use) for age, (gpu, use) in enumerate(zip(gpus, uses, strict=True))]
    kept = {share.uuid for share in arrange(wish(2), has).shares}
    assert kept == {uuid(index) for index in range(3)} - {uuid(place)}
    other = (place + 1) % 3
    closed = [replace(spot, use=UseClass.CLOSED) if index == other else spot for index, spot in enumerate(has)]
    assert uuid(other) not in {share.uuid for share in arrange(wish(2), closed).shares}
    resting = [replace(spot, use=UseClass.RESTING) for spot in has]
    assert {share.uuid for share in arrange(wish(2), resting).shares} == {uuid(0), uuid(1)}
