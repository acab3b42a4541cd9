"""Bundles: what has to be parked together."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.parking.rules.bundles import Bundle, bundles
from jupyter_gpu_node.processes.rules.process_id import ProcessId

processes = st.builds(ProcessId, st.integers(1, 9), st.integers(1, 3))
opened = st.lists(st.tuples(processes, st.sampled_from("abcdefg")), max_size=14)


@given(opened)
def test_bundles_are_the_smallest_that_are_closed(opened: list[tuple[ProcessId, str]]) -> None:
    """No process of a bundle has a GPU open outside of it, and none can be divided further."""
    found = bundles(opened)
    assert sorted(gpu for bundle in found for gpu in bundle.gpus) == sorted({gpu for _, gpu in opened})
    assert sorted(one for bundle in found for one in bundle.processes) == sorted({one for one, _ in opened})
    for bundle in found:
        assert all((one in bundle.processes) == (gpu in bundle.gpus) for one, gpu in opened)
        reached, before = {bundle.gpus[0]}, set[str]()
        while reached != before:
            before = set(reached)
            users = {one for one, gpu in opened if gpu in reached}
            reached |= {gpu for one, gpu in opened if one in users}
        assert reached == set(bundle.gpus)


def test_name_is_that_of_the_first_process() -> None:
    """It stays when another process joins later."""
    old, new = ProcessId(900, 5), ProcessId(7, 8)
    assert bundles([(new, "a"), (old, "a"), (new, "b")]) == [Bundle((old, new), ("a", "b"))]
    assert bundles([(old, "a")])[0].name == bundles([(new, "a"), (old, "a")])[0].name == "900-5"
