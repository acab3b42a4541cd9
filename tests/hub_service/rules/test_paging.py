"""Pages of tables."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.strict import FieldError
from jupyter_gpu_hub.rules.paging import PageQuery, page, read_query

COLUMNS = {"name", "used"}


def test_query_is_read_with_defaults() -> None:
    """Absent fields have their defaults."""
    assert read_query({}, COLUMNS) == PageQuery()
    given = {"search": "an", "sort": "-used", "page": "2", "size": "500"}
    assert read_query(given, COLUMNS) == PageQuery("an", "used", True, 2, 500)


@pytest.mark.parametrize(
    "fields",
    [
        {"sort": "secret"},
        {"sort": "--name"},
        {"page": "0"},
        {"page": "-1"},
        {"page": "1.5"},
        {"page": "²"},
        {"page": "99999999999999999999"},
        {"size": "501"},
        {"size": ""},
        {"search": "a" * 256},
        {"search": "a\nb"},
        {"serach": "a"},
    ],
)
def test_query_is_checked(fields: dict[str, str]) -> None:
    """A bad field is named."""
    with pytest.raises(FieldError) as error:
        read_query(fields, COLUMNS)
    assert error.value.field in (*fields, "sort")


def test_search_is_for_any_case() -> None:
    """Ann is found by AN, and straße by STRASSE."""
    found = page(["Ann", "bob", "straße"], PageQuery(search="AN"), len, str)
    assert (found.rows, found.total) == (("Ann",), 1)
    assert page(["straße"], PageQuery(search="STRASSE"), len, str).total == 1


@given(st.lists(st.text(max_size=3), unique=True), st.integers(1, 4), st.booleans())
def test_pages_are_the_whole_table_once(names: list[str], size: int, descending: bool) -> None:
    """All pages together have each row once, in order; equal keys are in order of their names."""
    whole: list[str] = []
    number = 1
    while rows := page(names, PageQuery(sort="used", descending=descending, page=number, size=size), len, str).rows:
        whole += rows
        number += 1
    assert whole == sorted(sorted(names), key=len, reverse=descending)


def test_page_tells_the_whole() -> None:
    """The JSON has the number of all rows."""
    found = page(["a", "b", "c"], PageQuery(page=2, size=2), str, str)
    assert found.to_json([{"name": name} for name in found.rows]) == {
        "total": 3,
        "page": 2,
        "size": 2,
        "items": [{"name": "c"}],
    }
