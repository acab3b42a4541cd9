"""The compute of the cluster's fastest GPU."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as some

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_scheduler.rules.state.fastest import FULL, Fastest
from jupyter_gpu_scheduler.rules.state.shape import shape_of
from jupyter_gpu_scheduler.rules.state.snapshot import ClusterSnapshot
from tests.builders import gpu

COMPUTES = some.lists(some.sampled_from([None, 1, 8_000, 30_000, 67_000]), max_size=3)


def gpus(*computes: int | None) -> tuple[Gpu, ...]:
    return tuple(gpu(index, compute=compute) for index, compute in enumerate(computes))


@given(some.lists(some.tuples(some.sampled_from("abc"), COMPUTES), max_size=12))
def test_fastest_is_that_of_all_nodes_that_are_there(changes: list[tuple[str, list[int | None]]]) -> None:
    """Whatever came, changed and went; a change of it is told, and only that."""
    fastest, there, most = Fastest(), dict[str, list[int | None]](), 0
    for node, computes in changes:
        there[node] = computes
        told = fastest.put(node, gpus(*computes))
        last, most = most, max((one or 0 for each in there.values() for one in each), default=0)
        assert told == (most != last)
        for compute in (1, 8_000, 30_000, 67_000):
            if compute <= most:
                assert fastest.pace(gpu(0, compute=compute)) == max(1, FULL * compute // most)


def test_pace_is_full_where_all_are_alike_or_nothing_is_known() -> None:
    """A node plugin that does not say it yet changes nothing."""
    fastest = Fastest()
    assert fastest.pace(gpu(0)) == fastest.pace(gpu(0, compute=5)) == FULL
    assert fastest.put("a", gpus(30_000, 30_000))
    assert fastest.pace(gpu(0)) == fastest.pace(gpu(0, compute=30_000)) == FULL


def test_all_nodes_are_rated_anew_once_the_fastest_gpu_comes_or_goes() -> None:
    """Ratings against another one are forgotten, and indexes read each node again."""
    snapshot = ClusterSnapshot()
    snapshot.put_node("slow", gpus(8_000))
    assert [one.pace for one in shape_of(snapshot, "slow") or ()] == [1000]
    snapshot.put_node("fast", gpus(64_000))
    assert [one.pace for one in shape_of(snapshot, "slow") or ()] == [125]
    read = snapshot.changes.last
    snapshot.put_node("middle", gpus(16_000))
    assert snapshot.changes.since(read) == {"middle"}
    snapshot.remove_node("fast")
    assert [one.pace for one in shape_of(snapshot, "slow") or ()] == [500]
    assert {"slow", "middle"} <= (snapshot.changes.since(read) or {"slow", "middle"})
