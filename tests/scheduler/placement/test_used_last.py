"""GPUs that outside processes use: taken where no other GPU would do, and only there."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.feasible import fits, islands
from jupyter_gpu.model.gpu import total
from jupyter_gpu.model.use_class import UseClass
from jupyter_gpu_scheduler.rules.placement.placement import Spot, arrange, choose
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot, NodeFacts
from tests.builders import GIB, NODE, apply, gpu, inventory, pod, uuid, wish


@st.composite
def machines(draw: st.DrawFn) -> list[Spot]:
    """At most five GPUs of a pod that has nothing, some of them used, some broken, some shared by others."""
    return [
        Spot(
            gpu(
                index,
                memory=draw(st.sampled_from([40, 80])) * GIB,
                healthy=draw(st.sampled_from([True, True, True, False])),
                island=draw(st.sampled_from([None, "a", "b"])),
                switch=draw(st.sampled_from([None, "a", "b"])),
            ),
            room=draw(st.sampled_from([0, 500, 1000, 1000])),
            held=draw(st.sampled_from([0, 0, 1000])),
            used=draw(st.booleans()),
        )
        for index in range(draw(st.integers(1, 5)))
    ]


wishes = st.builds(
    wish,
    st.sampled_from([0.25, 0.5, 1, 1.5, 2, 2.5, 3]),
    memory=st.sampled_from([None, 20 * GIB, 40 * GIB]),
    topology=st.sampled_from([None, "any", "island", "switch"]),
)


def fewest(wish: Wish, spots: list[Spot]) -> int | None:
    """Return how few used GPUs can serve a wish at once, by trying everything; None: it can't be served."""
    found = []
    for group in islands((spot.gpu for spot in spots), wish.topology):
        inside = [spot for spot in spots if spot.gpu in group]
        for some in permutations(inside, len(wish.pieces)):
            pairs = list(zip(some, wish.pieces, strict=True))
            if all(spot.gpu.healthy and spot.room >= size and fits(spot.gpu, wish, size) for spot, size in pairs):
                found.append(sum(spot.used for spot in some))
    return min(found, default=None)


@given(machines(), wishes)
def test_used_gpu_is_taken_only_if_no_other_one_would_do(spots: list[Spot], wish: Wish) -> None:
    """Every served pod gets as few of them as possible, and every wish that can be served is served."""
    least = fewest(wish, spots)
    try:
        found = arrange(wish, spots)
    except ValueError:  # a wish that no group of this machine can ever serve is refused before
        assert least is None
        return
    used = {spot.gpu.uuid for spot in spots if spot.used}
    assert (total(found.shares) == wish.milli) is (least is not None)
    if least is not None:
        assert sum(share.uuid in used for share in found.shares) == least


@given(machines(), st.sampled_from([250, 500, 1000]), st.integers(0, 5))
def test_choose_takes_unused_gpus_first(spots: list[Spot], size: int, count: int) -> None:
    """A used GPU is among the chosen only if every other one with room is."""
    chosen = choose(spots, size, count)
    able = [spot for spot in spots if spot.gpu.healthy and spot.room >= size]
    assert len(chosen) == min(count, len(able))
    if any(spot.used for spot in chosen):
        assert {spot.gpu.uuid for spot in able if not spot.used} <= {spot.gpu.uuid for spot in chosen}


def test_unused_gpus_come_before_near_ones() -> None:
    """Two GPUs of one island are better than two of different ones, but not if a program uses one of them."""
    four = inventory(4, island=2)
    spots = [Spot(gpu, 1000, used=gpu.index in (0, 3)) for gpu in four]
    assert [share.uuid for share in arrange(wish(2), spots).shares] == [uuid(1), uuid(2)]


def test_closing_gpu_comes_back_only_if_unused() -> None:
    """A shrink that is cancelled takes its GPU again, unless another program has it by now."""
    two = inventory(2)
    for used, expected in ((False, uuid(1)), (True, uuid(0))):
        spots = [Spot(two[0], 1000), Spot(two[1], 1000, held=1000, used=used)]
        assert [share.uuid for share in arrange(wish(1), spots).shares] == [expected]


def test_used_gpu_is_kept_and_given_back_first() -> None:
    """A pod keeps a GPU that an outside process begins to use; of those it gives back it is the first, if idle."""
    two = inventory(3)
    has = [Spot(two[0], 1000, 1000, 1000, 0, used=True), Spot(two[1], 1000, 1000, 1000, 1), Spot(two[2], 1000)]
    assert {share.uuid for share in arrange(wish(2), has).shares} == {uuid(0), uuid(1)}
    assert [share.uuid for share in arrange(wish(1), has).shares] == [uuid(1)]
    working = [Spot(two[0], 1000, 1000, 1000, 0, use=UseClass.WORKING, used=True), *has[1:]]
    assert [share.uuid for share in arrange(wish(1), working).shares] == [uuid(0)]


@pytest.mark.parametrize(("outside", "expected"), [(frozenset[str](), uuid(0)), (frozenset({uuid(0)}), uuid(1))])
def test_decision_uses_the_facts_of_the_node(outside: frozenset[str], expected: str) -> None:
    """The node's facts count for all of its pods."""
    snapshot = ClusterSnapshot()
    snapshot.put_node(NODE, inventory(2), NodeFacts(outside=outside))
    snapshot.put_pod(pod("one", wants=1))
    apply(snapshot, decide(snapshot, NODE))
    state = snapshot.pod("one")
    assert state is not None
    assert state.allocated is not None
    assert [share.uuid for share in state.allocated.shares] == [expected]


def test_cancelled_shrink_avoids_used_gpus() -> None:
    """A pod that could be served with what it holds alone stands in line for another GPU."""
    snapshot = ClusterSnapshot()
    snapshot.put_node(NODE, inventory(2), NodeFacts(outside=frozenset({uuid(0)})))
    snapshot.put_pod(pod("one", wants=1, has=(), draining=[0]))
    (decision,) = decide(snapshot, NODE)
    assert [share.uuid for share in decision.allocated.shares] == [uuid(1)]
