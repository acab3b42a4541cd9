"""Pages of a table of thousands of rows, of which only those that are shown are kept."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable, Sequence
from typing import Any, TypeVar

from jupyter_gpu_hub.rules.paging import Page, PageQuery, cut, matching

T = TypeVar("T")

BATCH = 50
"""Rows that are made before others may use the event loop."""


class LargeTable:
    """Makes pages from items that are small, such as names, and a function that makes the row of one."""

    def __init__(self) -> None:
        self._sort: tuple[Hashable, object] = ("", None)
        self._keys: dict[str, Any] = {}

    async def page(
        self,
        items: Sequence[T],
        query: PageQuery,
        text: Callable[[T], str],
        key: Callable[[T], Any],
        make: Callable[[T], Any],
    ) -> Page:
        """Return the wanted page of rows. ``text``: what is searched; ``key``: the order; ``make``: the row."""
        found = matching(items, query, text)
        keys = []
        for number, item in enumerate(found):
            keys.append(key(item))
            if number % BATCH == BATCH - 1:
                await asyncio.sleep(0)
        page = cut(found, keys, query)
        return Page(tuple(make(item) for item in page.rows), page.total, query)

    def kept(self, sort: Hashable, version: object, key: Callable[[str], Any]) -> Callable[[str], Any]:
        """Return ``key`` with its results kept, as long as the same column is asked for in the same ``version``."""
        if self._sort[0] != sort or self._sort[1] is not version:
            self._sort, self._keys = (sort, version), {}
        keys = self._keys

        def find(name: str) -> Any:
            if name not in keys:
                keys[name] = key(name)
            return keys[name]

        return find
