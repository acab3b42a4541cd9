"""Pages of a table of which only what is shown is kept."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_hub.rules.paging import PageQuery, page
from jupyter_gpu_hub.state.large_table import BATCH, LargeTable

NAMES = [f"user-{number:03}" for number in range(4 * BATCH)]


@given(
    st.lists(st.text("abAB", min_size=1, max_size=3), unique=True),
    st.sampled_from(["", "a", "B"]),
    st.booleans(),
    st.integers(1, 3),
    st.integers(1, 4),
)
def test_page_is_that_of_all_rows(names: list[str], search: str, descending: bool, number: int, size: int) -> None:
    """The same rows in the same order as if all had been made; rows of the same key are in order of their name."""
    query = PageQuery(search, "length", descending, number, size)
    found = asyncio.run(LargeTable().page(names, query, str, len, str.upper))
    wanted = page(names, query, len, str)
    assert (found.rows, found.total) == (tuple(map(str.upper, wanted.rows)), wanted.total)


def test_only_rows_of_the_page_are_made() -> None:
    """Others are asked for their key only."""
    made: list[str] = []

    def make(name: str) -> str:
        made.append(name)
        return name

    query = PageQuery(page=2, size=3)
    asyncio.run(LargeTable().page(NAMES, query, str, str, make))
    assert made == NAMES[3:6]


def test_others_have_the_event_loop_in_between() -> None:
    """A table of thousands does not block requests."""
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns += 1

    async def both() -> None:
        counting = asyncio.create_task(count())
        await LargeTable().page(NAMES, PageQuery(), str, str, str)
        counting.cancel()

    asyncio.run(both())
    assert turns >= 3


def test_keys_are_kept_for_one_column_in_one_version() -> None:
    """The next page of the same table asks for no key again; another column, or another version, does."""
    asked: Counter[str] = Counter()

    def key(name: str) -> Any:
        asked[name] += 1
        return name

    table, first, second = LargeTable(), object(), object()
    for sort, version, times in (("a", first, 1), ("a", first, 1), ("b", first, 2), ("b", second, 3), ("b", second, 3)):
        assert table.kept(sort, version, key)("ann") == "ann"
        assert asked["ann"] == times
