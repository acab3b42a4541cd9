"""A page of a table: search, order and position, as the query of a request says them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from jupyter_gpu.model import strict

T = TypeVar("T")

SIZE, MOST = 50, 500
"""Rows of a page: if nothing is said, and at most."""
MAX_PAGE = 1_000_000
MAX_SEARCH = 255


@dataclass(frozen=True, slots=True)
class PageQuery:
    """The wanted page of a table."""

    search: str = ""
    """Text that is contained in a row's name, in any case."""
    sort: str = "name"
    descending: bool = False
    page: int = 1
    size: int = SIZE


@dataclass(frozen=True, slots=True)
class Page:
    """The rows of one page, and the number of rows on all pages."""

    rows: tuple[Any, ...]
    total: int
    query: PageQuery

    def to_json(self, rows: list[dict[str, Any]]) -> dict[str, Any]:
        """Return the JSON; ``rows`` are the page's rows in theirs."""
        return {"total": self.total, "page": self.query.page, "size": self.query.size, "items": rows}


def read_query(fields: Mapping[str, str], columns: Collection[str]) -> PageQuery:
    """Read ``search``, ``sort`` (a column, with ``-`` before it for descending), ``page`` and ``size``.

    Raises `FieldError`, also for any other field.
    """
    strict.no_unknown(fields, ("search", "sort", "page", "size"))
    search = fields.get("search", "")
    if search:
        strict.text(MAX_SEARCH)(search, "search")
    sort = fields.get("sort", "name")
    column = strict.one_of(*sorted(columns))(sort.removeprefix("-"), "sort")
    return PageQuery(
        search=search,
        sort=column,
        descending=sort.startswith("-"),
        page=_number(fields, "page", 1, MAX_PAGE),
        size=_number(fields, "size", SIZE, MOST),
    )


def page(rows: Iterable[T], query: PageQuery, key: Callable[[T], Any], text: Callable[[T], str]) -> Page:
    """Return the wanted page. ``key`` orders, ``text`` is searched; rows of the same key are in order of their text."""
    found = matching(rows, query, text)
    return cut(found, [key(row) for row in found], query)


def matching(rows: Iterable[T], query: PageQuery, text: Callable[[T], str]) -> list[T]:
    """Return the rows that are searched for, in order of their text."""
    word = query.search.casefold()
    return sorted((row for row in rows if word in text(row).casefold()) if word else rows, key=text)


def cut(found: Sequence[T], keys: Sequence[Any], query: PageQuery) -> Page:
    """Return the wanted page of what `matching` found; ``keys`` order it."""
    order = sorted(range(len(found)), key=keys.__getitem__, reverse=query.descending)
    start = (query.page - 1) * query.size
    return Page(tuple(found[number] for number in order[start : start + query.size]), len(found), query)


def _number(fields: Mapping[str, str], key: str, default: int, most: int) -> int:
    text = fields.get(key)
    if text is None:
        return default
    number = int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 0
    return strict.integer(1, most)(number, key)
