"""FGD's measure: which part of the free GPUs the next wish has no use for."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.scoring.fragmentation import fragmentation, workload_of
from jupyter_gpu_scheduler.rules.scoring.policy import Policy, WorkloadKind
from jupyter_gpu_scheduler.rules.state.shape import Shape, after, gpus_of, shape_of
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import GIB, cluster, inventory, new, pod


def shape(free: list[int], **fields: Any) -> Shape:
    """GPUs of which so much is free."""
    found = shape_of(cluster({"n": inventory(len(free), **fields)}), "n")
    assert found is not None
    return after(found, [(index, 1000 - milli) for index, milli in enumerate(free)])


def mix(*kinds: WorkloadKind) -> Policy:
    """A policy with this mix of wishes."""
    return Policy(workload=kinds)


@pytest.mark.parametrize(
    ("wish", "free", "useless"),
    [
        (Wish(1000), [1000, 1000], 0),
        (Wish(1000), [1000, 500], 500),
        (Wish(500), [1000, 500, 250], 250),
        (Wish(2000), [1000, 500], 1500),
        (Wish(2000), [1000, 1000, 500], 500),
        (Wish(1500), [1000, 500, 250], 250),
        (Wish(1500), [500, 500], 1000),
        (Wish(1500), [1000, 250], 1250),
        (Wish(1000, each=500), [500, 250], 750),
        (Wish(1000, model=("H100",)), [1000, 1000], 2000),
        (Wish(1000), [], 0),
        (None, [1000, 250], 1250),
        (Wish(0), [1000], 1000),
    ],
)
def test_useless_part_for_one_wish(wish: Wish | None, free: list[int], useless: int) -> None:
    """GPUs are useless if a part is too small, they are too few, of another model, or the wish is for none."""
    assert fragmentation(mix(WorkloadKind(wish, 1.0)), shape(free)) == useless


def test_measure_is_the_mean_over_the_mix() -> None:
    """Weights of the mix are relative; a mix of nothing finds nothing useless."""
    two = mix(WorkloadKind(Wish(1000), 3.0), WorkloadKind(Wish(500), 1.0))
    assert fragmentation(two, shape([500])) == 375
    assert fragmentation(mix(WorkloadKind(Wish(1000), 0.0)), shape([500])) == 0


def test_gpus_without_cpu_are_useless() -> None:
    """GPUs of a node whose CPU is used up are stranded; where CPU is not known it is not looked at."""
    policy = mix(WorkloadKind(Wish(500), 1.0, cpu=2000))
    assert [fragmentation(policy, shape([500, 250]), cpu) for cpu in (None, 2000, 1999)] == [250, 250, 750]


def test_island_is_a_demand_in_the_measure() -> None:
    """For a wish for two GPUs of one island, single ones are useless."""
    policy = mix(WorkloadKind(Wish(2000, topology="island"), 1.0))
    assert fragmentation(policy, shape([1000, 1000, 1000, 0], island=2)) == 1000


def test_broken_gpus_are_not_free() -> None:
    """Broken GPUs count neither as free nor as useless."""
    found = shape_of(cluster({"n": inventory(2, unhealthy=[0])}), "n")
    assert found is not None
    assert fragmentation(mix(WorkloadKind(Wish(2000), 1.0)), found) == 1000


@given(st.lists(st.sampled_from([0, 250, 500, 750, 1000]), max_size=4), st.integers(0, 4000))
def test_measure_is_between_zero_and_the_free_amount(free: list[int], milli: int) -> None:
    """The useless part is never more than what is free, nor less than nothing."""
    assert 0 <= fragmentation(mix(WorkloadKind(Wish(milli), 1.0)), shape(free)) <= sum(free)


def test_mix_is_made_of_the_wishes_of_a_cluster() -> None:
    """The mix has the wishes with the CPU that comes with them, the most frequent first."""
    pods = [new("a", wants=1, asks={"cpu": 500}), new("b"), new("c", wants=0), new("d", wants=0.5), new("e")]
    assert workload_of(pods) == (
        WorkloadKind(None, 0.6),
        WorkloadKind(Wish(1000), 0.2, 500),
        WorkloadKind(Wish(500), 0.2),
    )
    assert workload_of([]) == ()


def test_shape_does_not_depend_on_names() -> None:
    """Nodes with other uuids and other words for their islands look the same, and what is held counts."""
    gpus = inventory(4, island=2, switch=1)
    renamed = tuple(
        replace(gpu, uuid=f"x{gpu.index}", island=f"other {gpu.island}", switch=f"s{gpu.index}") for gpu in gpus
    )
    snapshot = ClusterSnapshot()
    snapshot.put_node("n", gpus)
    snapshot.put_node("m", renamed)
    assert shape_of(snapshot, "n") == shape_of(snapshot, "m")
    assert shape_of(snapshot, "unknown") is None
    snapshot.put_pod(pod("a", has={1: 250}, node="n"))
    found = shape_of(snapshot, "n")
    assert found is not None
    assert [cell.free for cell in found] == [1000, 750, 1000, 1000]
    assert [cell.island for cell in found] == [0, 0, 1, 1]


def test_shape_gives_its_gpus_back() -> None:
    """The GPUs of a shape have all that placement looks at, named by their places."""
    found = gpus_of(shape([1000, 1000], island=1))
    assert found[1] == Gpu("1", 1, "Simulated GPU", 80 * GIB, island="1")
    assert gpus_of(shape([1000], switch=1))[0].switch == "0"
