"""Cells of a table of limits."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu.model.limits.transfer import cells
from jupyter_gpu.model.strict import FieldError

from ..strategies import ODD_NAMES, limits

STARTS = st.sampled_from(["=", "+", "-", "@", "\t", "\r", "\n", "＝", "'", "''", "'=", "a", " ="])


@given(st.text() | st.text("=+-@\t\r\n;,'\"a") | st.builds(str.__add__, STARTS, st.text()) | st.sampled_from(ODD_NAMES))
def test_protected_cell_comes_back(cell: str) -> None:
    """No cell, nor what follows a separator in it, begins as a formula does, and each is read as it was."""
    found = cells.protect(cell)
    assert all(part.lstrip('"')[:1] not in {*cells.FORMULA} for part in re.split("[;,\t\r\n]", found) if part)
    assert cells.expose(found) == cell


@pytest.mark.parametrize("cell", ["", "'", "'quoted'", "a=b", "plain"])
def test_cell_of_a_person_stays(cell: str) -> None:
    """A cell that no one protected is read as it is."""
    assert cells.expose(cell) == cell


@given(limits)
def test_cells_of_lists_come_back(limit: Limit) -> None:
    """Models, hours and budget are read as they were written."""
    spec = limit.spec()
    if "models" in spec:
        assert cells.read_models(cells.models_cell(spec["models"])) == spec["models"]
    if "hours" in spec:
        again = cells.read_hours(cells.hours_cell(spec["hours"]))
        assert [{"days": ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"], **item} for item in again] == spec["hours"]
    if "budget" in spec:
        again = cells.read_budget(cells.budget_cell(spec["budget"]))
        assert again == {**spec["budget"], "gpuHours": str(spec["budget"]["gpuHours"])}


@given(st.lists(st.fixed_dictionaries({"model": st.text('aA =;[]",-1', min_size=1), "max": st.just("1")}), max_size=3))
def test_models_of_any_words_come_back(models: list[dict[str, Any]]) -> None:
    """Words with the letters of the short form are written as JSON."""
    assert cells.read_models(cells.models_cell(models)) == models


@pytest.mark.parametrize(
    ("write", "read", "value", "cell"),
    [
        (
            cells.models_cell,
            cells.read_models,
            [{"model": "A100", "max": "1"}, {"model": "H100 PCIe", "max": "unlimited"}],
            "A100=1; H100 PCIe=unlimited",
        ),
        (cells.models_cell, cells.read_models, [{"model": "a;b", "max": "1"}], '[{"model":"a;b","max":"1"}]'),
        (
            cells.hours_cell,
            cells.read_hours,
            [
                {"days": ["Mon", "Tue", "Wed", "Thu", "Fri"], "from": "08:00", "to": "18:00", "max": "1"},
                {"days": ["Sat", "Sun"], "from": "00:00", "to": "24:00", "max": "500m"},
                {"days": ["Mon", "Wed", "Fri"], "from": "00:00", "to": "24:00", "max": "2"},
            ],
            "Mon-Fri 08:00-18:00=1; Sat Sun 00:00-24:00=500m; Mon Wed Fri 00:00-24:00=2",
        ),
        (cells.hours_cell, cells.read_hours, [], "none"),
        (cells.budget_cell, cells.read_budget, {"gpuHours": "0.5", "window": "Week"}, "0.5 per Week"),
        (cells.yes_cell, cells.read_yes, True, "true"),
    ],
)
def test_short_forms(write: Callable[[Any], str], read: Callable[[str], Any], value: Any, cell: str) -> None:
    """Lists are written as people write them."""
    assert write(value) == cell
    assert read(cell) == value


@pytest.mark.parametrize(
    ("read", "cell", "value"),
    [
        (cells.read_models, " A100 = 1 ;; ", [{"model": "A100", "max": "1"}]),
        (cells.read_hours, "NONE", []),
        (cells.read_hours, "08:00 - 18:00 = 1", [{"from": "08:00", "to": "18:00", "max": "1"}]),
        (
            cells.read_hours,
            "sat - mon, wed 1:00-2:00=1",
            [{"days": ["Sat", "Sun", "Mon", "Wed"], "from": "1:00", "to": "2:00", "max": "1"}],
        ),
        (cells.read_hours, "Fry 1-2=1", [{"days": ["Fry"], "from": "1", "to": "2", "max": "1"}]),
        (cells.read_hours, "Mon-Fry 1-2=1", [{"days": ["Mon", "Fry"], "from": "1", "to": "2", "max": "1"}]),
        (cells.read_budget, "100/month", {"gpuHours": "100", "window": "Month"}),
        (cells.read_budget, " Unlimited ", "unlimited"),
        (cells.read_number, " 5 ", 5),
        (cells.read_number, "five", "five"),
        (cells.read_yes, "FALSE", False),
        (cells.read_yes, "no", "no"),
    ],
)
def test_other_forms_are_read(read: Callable[[str], Any], cell: str, value: Any) -> None:
    """Forms that people write are read; what is no value is left to the check of the spec."""
    assert read(cell) == value


@pytest.mark.parametrize(
    ("read", "cell", "says"),
    [
        (cells.read_models, "A100", "must be such as A100=1; H100=unlimited, and not 'A100'"),
        (cells.read_models, "[", "not valid JSON"),
        (cells.read_hours, "all day", "must be such as Mon-Fri 08:00-18:00=1, and not 'all day'"),
        (cells.read_hours, "-" * 10_000, "and not '-----"),
        (cells.read_budget, "much", "must be such as 100 per Month, and not 'much'"),
    ],
)
def test_bad_cells_are_refused(read: Callable[[str], Any], cell: str, says: str) -> None:
    """A cell in no known form is refused with the form that is known."""
    with pytest.raises(FieldError, match=says):
        read(cell)
