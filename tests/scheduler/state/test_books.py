"""The memory of a GPU that is free in the books."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.annotations import Allocated
from jupyter_gpu.model.demand import HeldMemory
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu_scheduler.rules.state.books import free_memory, memory_beside
from jupyter_gpu_scheduler.rules.state.pod_state import PodState
from tests.builders import GIB, NODE, gpu, world


def test_free_memory_counts_records_and_parts() -> None:
    """One pod may be left out, as the one that is asked for."""
    milli, recorded = {"a": 250, "b": 500}, {"a": HeldMemory(0, 40 * GIB)}
    assert free_memory(80 * GIB, milli, recorded) == 0
    assert free_memory(80 * GIB, milli, recorded, "a") == 40 * GIB
    assert free_memory(60 * GIB, milli, recorded) == -10 * GIB


@given(st.integers(1, 2**40), st.lists(st.integers(1, 250), max_size=4))
def test_parts_leave_at_least_what_goes_with_the_free_milli(memory: int, milli: list[int]) -> None:
    """So room for a part is never missed for want of memory where no share records it."""
    held = {str(number): one for number, one in enumerate(milli)}
    assert free_memory(memory, held, {}) >= memory_beside(memory, 1000 - sum(milli))


def test_snapshot_counts_memory_by_node() -> None:
    """A record of a pod on another node is of another GPU, as of milli."""
    shares = (GpuShare("GPU-0", 250, 40 * GIB),)
    pods = [PodState(uid, node, allocated=Allocated(1, shares)) for uid, node in (("a", NODE), ("b", "other"))]
    found = world([gpu(0, gate=True)], pods)
    assert found.free_memory(gpu(0), NODE) == 40 * GIB
    assert found.memory_held("GPU-0", "other").keys() == {"b"}
    assert found.memory_held("GPU-0").keys() == {"a", "b"}
    assert found.contested(NODE) == ()
    found.remove_pod("a")
    assert found.free_memory(gpu(0), NODE) is None
