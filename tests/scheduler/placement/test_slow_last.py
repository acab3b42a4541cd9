"""GPUs that are slow, and priorities of single GPUs: which GPU of a node a pod gets."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import fits, islands
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.use_class import UseClass
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.placement.placement import Spot, arrange, choose
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import NODE, apply, by_index, cluster, gpu, inventory, new, pod, uuid, wish


@st.composite
def machines(draw: st.DrawFn) -> list[Spot]:
    """At most five GPUs of a pod that has nothing: some slow, some used outside, some shared by others."""
    return [
        Spot(
            gpu(
                index,
                healthy=draw(st.sampled_from([True, True, True, False])),
                island=draw(st.sampled_from([None, "a", "b"])),
                slow=draw(st.booleans()),
            ),
            room=draw(st.sampled_from([0, 500, 1000, 1000])),
            used=draw(st.sampled_from([False, False, True])),
            priority=draw(st.sampled_from([None, 0, 9])),
        )
        for index in range(draw(st.integers(1, 5)))
    ]


def fewest(wish: Wish, spots: list[Spot]) -> tuple[int, int] | None:
    """Return how few used GPUs, and then how few slow ones, can serve a wish, by trying everything."""
    found = []
    for group in islands((spot.gpu for spot in spots), wish.topology):
        inside = [spot for spot in spots if spot.gpu in group]
        for some in permutations(inside, len(wish.pieces)):
            pairs = list(zip(some, wish.pieces, strict=True))
            if all(spot.gpu.healthy and spot.room >= size and fits(spot.gpu, wish, size) for spot, size in pairs):
                found.append((sum(spot.used for spot in some), sum(spot.gpu.slow for spot in some)))
    return min(found, default=None)


@given(machines(), st.sampled_from([0.25, 0.5, 1, 2, 3]), st.sampled_from([None, "any", "island"]))
def test_slow_gpu_is_taken_only_if_no_other_one_would_do(
    spots: list[Spot], amount: float, topology: str | None
) -> None:
    """Every served pod gets as few of them as possible, once it gets as few as possible that others use."""
    wanted = wish(amount, topology=topology)
    least = fewest(wanted, spots)
    try:
        found = arrange(wanted, spots)
    except ValueError:  # a wish that no group of this machine can ever serve is refused before
        assert least is None
        return
    assert (total(found.shares) == wanted.milli) is (least is not None)
    if least is not None:
        given = [spot for spot in spots if spot.gpu.uuid in {share.uuid for share in found.shares}]
        assert (sum(spot.used for spot in given), sum(spot.gpu.slow for spot in given)) == least


@given(st.lists(st.sampled_from([None, 0, 4, 5, 9]), min_size=1, max_size=6), st.integers(1, 3), st.booleans())
def test_highest_priority_comes_first(priorities: list[int | None], count: int, whole: bool) -> None:
    """Among GPUs that are equal otherwise, with those that are not named in the middle."""
    spots = [Spot(each, 1000, priority=one) for each, one in zip(inventory(6), priorities, strict=False)]
    chosen = choose(spots, 1000 if whole else 250, count)
    rest = [spot for spot in spots if spot not in chosen]
    assert len(chosen) == min(count, len(spots))
    assert all(_rank(one) >= _rank(other) for one in chosen for other in rest)


def _rank(spot: Spot) -> float:
    return 4.5 if spot.priority is None else spot.priority


def test_group_without_slow_gpus_is_better() -> None:
    """Where a wish needs one group of GPUs, the number of slow ones decides between groups."""
    four = [gpu(index, island="ab"[index // 2], slow=index == 1) for index in range(4)]
    found = arrange(wish(2, topology="island"), [Spot(each, 1000) for each in four])
    assert {share.uuid for share in found.shares} == {uuid(2), uuid(3)}


def test_part_goes_where_the_least_is_left_over_whatever_the_priority() -> None:
    """A priority breaks no whole GPU."""
    one, two = inventory(2)
    assert choose([Spot(one, 1000, priority=9), Spot(two, 500, priority=0)], 250, 1)[0].gpu is two


def test_closing_gpu_comes_back_although_it_is_slow() -> None:
    """A shrink that is cancelled takes its GPU again: a program there may still have it open."""
    spots = [Spot(gpu(0), 1000), Spot(gpu(1, slow=True), 1000, held=1000)]
    assert [share.uuid for share in arrange(wish(1), spots).shares] == [uuid(1)]


def test_slow_gpu_is_kept_and_given_back_first() -> None:
    """Nothing moves because of it; of those that a pod gives back it is the first, if idle."""
    slow, fast, free = gpu(0, slow=True), gpu(1), gpu(2)
    has = [Spot(slow, 1000, 1000, 1000, 0), Spot(fast, 1000, 1000, 1000, 1), Spot(free, 1000)]
    assert {share.uuid for share in arrange(wish(2), has).shares} == {uuid(0), uuid(1)}
    assert [share.uuid for share in arrange(wish(1), has).shares] == [uuid(1)]
    working = [Spot(slow, 1000, 1000, 1000, 0, use=UseClass.WORKING), *has[1:]]
    assert [share.uuid for share in arrange(wish(1), working).shares] == [uuid(0)]


@pytest.mark.parametrize(
    ("priorities", "slow", "expected"),
    [({}, (), 0), ({uuid(1): 9}, (), 1), ({uuid(0): 3}, (), 1), ({}, (0,), 1), ({uuid(0): 9}, (0,), 1)],
)
def test_decisions_use_them(priorities: dict[str, int], slow: tuple[int, ...], expected: int) -> None:
    """For running pods and for new ones."""
    gpus = [gpu(index, slow=index in slow) for index in range(2)]
    snapshot = ClusterSnapshot(priorities)
    snapshot.put_node(NODE, tuple(gpus))
    snapshot.put_pod(pod("one", wants=1))
    apply(snapshot, decide(snapshot, NODE))
    state = snapshot.pod("one")
    assert state
    assert by_index(state.allocated) == {expected: 1000}
    granted = allocate(cluster({"n": gpus}, priorities=priorities), new("me", wants=1), "n")
    assert [share.uuid for share in getattr(granted, "shares", ())] == [uuid(expected)]
