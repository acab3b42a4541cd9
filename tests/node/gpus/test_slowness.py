"""When a GPU counts as slow."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.gpus.rules.slowness import BEGIN, END, Slowness


def count(found: list[bool]) -> list[bool]:
    """Return after each inventory whether the GPU counts as slow."""
    slowness = Slowness()
    counted = []
    for slow in found:
        slowness.update({"a": slow})
        counted.append(slowness.is_slow("a"))
    return counted


@given(st.lists(st.tuples(st.booleans(), st.integers(1, END + 2)), max_size=8))
def test_gpu_counts_as_slow_after_some_inventories_in_a_row(runs: list[tuple[bool, int]]) -> None:
    """And as fast again after more of them: both are exactly so many in a row."""
    found = [slow for slow, times in runs for _ in range(times)]
    expected, now = [], False
    for number in range(len(found)):
        if not now and found[: number + 1][-BEGIN:] == [True] * BEGIN:
            now = True
        elif now and found[: number + 1][-END:] == [False] * END:
            now = False
        expected.append(now)
    assert count(found) == expected


def test_gpus_are_counted_apart() -> None:
    """One that did not answer stays as it was."""
    slowness = Slowness()
    for _ in range(BEGIN - 1):
        slowness.update({"a": True, "b": False})
    slowness.update({"b": True})
    assert not slowness.is_slow("a")
    slowness.update({"a": True})
    assert [slowness.is_slow(uuid) for uuid in "abc"] == [True, False, False]
