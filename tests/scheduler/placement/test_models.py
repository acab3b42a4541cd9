"""Allowances for GPUs of some models: which GPUs a pod may see, and which part of its wish they can serve."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated, Reason, Wish
from jupyter_gpu.model.use_class import UseClass
from jupyter_gpu_scheduler.rules.new_pods.admit import allocate
from jupyter_gpu_scheduler.rules.placement.models import ModelAllowances, within_models
from jupyter_gpu_scheduler.rules.placement.placement import Spot, arrange
from jupyter_gpu_scheduler.rules.placement.shortage import LIMITED
from jupyter_gpu_scheduler.rules.queue.candidates import filter_nodes
from jupyter_gpu_scheduler.rules.queue.decide import decide
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import GIB, NODE, cluster, decided, inventory, new, pod, wish, world

MIXED = inventory(4, models=["A100", "H100"], island=2)
ONE: ModelAllowances = (("a100", 1000),)


def _spots(**room: int) -> list[Spot]:
    """Return the GPUs with A100s first in each pair; ``room`` of some by ``g`` and index."""
    return [Spot(gpu, room.get(f"g{gpu.index}", 1000)) for gpu in MIXED]


SEEN = {
    "one such GPU, the first": (wish(3), _spots(), ONE, wish(3), [0, 1, 3]),
    "the one with the most room": (wish(3), _spots(g0=500), ONE, wish(3), [1, 2, 3]),
    "none": (wish(3), _spots(), (("a100", 500),), wish(2), [1, 3]),
    "two smaller shares": (wish(1, each=500), _spots(), ONE, wish(1, each=500), [0, 1, 2, 3]),
    "what the others can serve": (wish(3, model=("A100",)), _spots(), ONE, wish(1, model=("A100",)), [0, 1, 3]),
    "the largest shares count": (wish(1.5), _spots(), (("a100", 1200),), wish(1.5), [0, 1, 3]),
    "by several words": (wish(4), _spots(), (("a100", 1000), ("h100", 0)), wish(1), [0]),
    "nothing is left": (wish(2), _spots(), (("a100", 0), ("h100", 0)), wish(0), []),
    "shares need memory": (wish(1, memory=90 * GIB), _spots(), ONE, wish(0, memory=90 * GIB), [0, 1, 3]),
}


@pytest.mark.parametrize("name", SEEN)
def test_gpus_within_the_allowances(name: str) -> None:
    """A pod sees so many GPUs of the model as its allowance permits, and gets what they and the others can serve."""
    asked, spots, allowances, part, seen = SEEN[name]
    found, left = within_models(asked, spots, allowances)
    assert (found, [spot.gpu.index for spot in left]) == (part, seen)


def test_own_gpus_are_seen_first() -> None:
    """Those in use come first, then those that it has, then those that it still holds."""
    gpus = inventory(4, models=["A100"])
    has = [
        Spot(gpus[0], 1000),
        Spot(gpus[1], 1000, held=1000),
        Spot(gpus[2], 1000, held=1000, share=1000),
        Spot(gpus[3], 1000, held=1000, share=1000, use=UseClass.WORKING),
    ]
    seen = [
        [spot.gpu.index for spot in within_models(wish(4), has, (("a100", count * 1000),))[1]] for count in (1, 2, 3)
    ]
    assert seen == [[3], [2, 3], [1, 2, 3]]


def test_gpus_of_one_island_are_seen_together() -> None:
    """For a wish of an island: those of the island where it has a share, else of the largest."""
    gpus = inventory(5, models=["A100"], island=2)
    asks = wish(2, topology="island")
    free = [Spot(gpu, 1000 if gpu.index else 500) for gpu in gpus]
    assert [spot.gpu.index for spot in within_models(asks, free, (("a100", 2000),))[1]] == [0, 1]
    own = [replace(spot, share=1000 if spot.gpu.index == 2 else 0) for spot in free]
    assert [spot.gpu.index for spot in within_models(asks, own, (("a100", 2000),))[1]] == [2, 3]


@given(
    st.lists(st.tuples(st.booleans(), st.sampled_from([0, 300, 500, 1000])), min_size=1, max_size=5),
    st.sampled_from([wish(0.5), wish(1.5), wish(2), wish(3), wish(1, each=500), wish(2, topology="island")]),
    st.sampled_from([0, 300, 500, 1000, 1500, 2000]),
)
def test_arrangement_stays_within_the_allowance(gpus: list[tuple[bool, int]], asked: Wish, allowance: int) -> None:
    """Whatever is free, and whatever the pod had: its shares of such GPUs never exceed the allowance."""
    found = inventory(len(gpus), models=["A100" if such else "H100" for such, _ in gpus], island=2)
    spots = [
        Spot(gpu, 1000, held=share, share=share, age=gpu.index) for gpu, (_, share) in zip(found, gpus, strict=True)
    ]
    part, seen = within_models(asked, spots, (("a100", allowance),))
    shares = arrange(part, seen).shares
    models = {gpu.uuid: gpu.model for gpu in found}
    assert sum(share.milli for share in shares if models[share.uuid] == "A100") <= allowance


def _limited(state: PodState) -> PodState:
    return replace(state, model_allowances=ONE)


RUNNING = {
    "one A100 and the others": (_limited(pod("a", wants=4)), {0: 1000, 1: 1000, 3: 1000}),
    "one too many is given back": (_limited(pod("a", wants=2, has=[0, 2], busy=[2])), {2: 1000, 3: 1000}),
    "also if the wish can't be read": (
        replace(_limited(pod("a", has=[0, 2, 1])), fault="It can't be read."),
        {0: 1000, 1: 1000},
    ),
    "all that is wished": (_limited(pod("a", wants=2)), {0: 1000, 1: 1000}),
}


@pytest.mark.parametrize("name", RUNNING)
def test_running_pods_stay_within_their_allowances(name: str) -> None:
    """A running pod gets and keeps GPUs of the model within its allowance, and others as it wishes."""
    state, expected = RUNNING[name]
    snapshot = world(MIXED, [state])
    assert decided(snapshot)["a"] == expected
    assert decide(snapshot, NODE) == ()
    found = snapshot.pod("a")
    assert found is not None
    assert found.allocated is not None
    over = state.requested is not None and state.requested.milli > 3000
    assert (found.allocated.reason is Reason.LIMIT_EXCEEDED) == over


def test_new_pod_goes_where_its_allowance_permits_all() -> None:
    """A node that would have to give too many A100s is none for it, whatever comes free."""
    nodes = {"a": inventory(4, models=["A100"]), "h": inventory(4, models=["H100"]), "ah": MIXED}
    snapshot = cluster(nodes)
    asks = _limited(new("x", wants=2))
    found = filter_nodes(snapshot, asks, tuple(nodes))
    assert (found.fitting, found.never) == (("h", "ah"), {"a": LIMITED})
    granted = allocate(snapshot, asks, "ah")
    assert isinstance(granted, Allocated)
    models = sorted(
        gpu.model for share in granted.shares for gpu in snapshot.gpus("ah") or () if gpu.uuid == share.uuid
    )
    assert models in (["A100", "H100"], ["H100", "H100"])
    assert filter_nodes(snapshot, new("y", wants=2), ("a",)).fitting == ("a",), "answers are kept by allowances"


def test_new_pod_in_line_where_its_allowance_permits_too_little() -> None:
    """In that node's line it gets nothing, keeps nothing back, and no position is written: it has to leave."""
    snapshot = cluster({"a": inventory(2, models=["A100"])})
    snapshot.put_pod(_limited(new("x", wants=2, ticket=1, on="a")))
    snapshot.put_pod(pod("y", wants=2, node="a"))
    assert [one.uid for one in decide(snapshot, "a")] == ["y"]
