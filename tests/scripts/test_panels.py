"""The picture of the dashboard."""

import json
import xml.etree.ElementTree as ET
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scripts.lib.panels import Series, ceiling, drawing, shown

DASHBOARD = json.loads(
    (Path(__file__).parents[2] / "deploy/chart/jupyter-gpu/files/monitoring/dashboard.json").read_text()
)


def test_every_panel_has_title_and_series() -> None:
    """Names are escaped; an empty panel says so."""
    ids = [panel["id"] for panel in DASHBOARD["panels"] if panel["type"] != "row"]
    found = {number: [Series(f"<{number}>", [(0, 1), (60, 3)]), Series("two", [(0, 0.5)])] for number in ids[1:]}
    text = drawing(DASHBOARD, found)
    words = [element.text for element in ET.fromstring(text).iter("{http://www.w3.org/2000/svg}text")]
    assert {panel["title"] for panel in DASHBOARD["panels"]} <= set(words)
    assert words.count("no data") == 1
    drawn = [panel["id"] for panel in DASHBOARD["panels"] if panel["type"] in ("timeseries", "bargauge")]
    assert {f"<{number}>" for number in drawn} <= set(words)


@given(st.floats(1e-9, 1e12))
def test_axis_ends_just_above_all_values(most: float) -> None:
    """It does not end far above."""
    assert most <= ceiling(most) * (1 + 1e-6)
    assert ceiling(most) <= most * 2.6


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [(0.0123, "s", "12.3 ms"), (2.5, "s", "2.5 s"), (0.256, "percentunit", "25.6 %"), (7, "none", "7")],
)
def test_figures_have_units(value: float, unit: str, text: str) -> None:
    """They are written as people write them."""
    assert shown(value, unit) == text
