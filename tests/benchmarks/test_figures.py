"""Figures: percentiles, goals, the table and the JSON."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.lib.figures import Figure, interval, percentile, short, table

numbers = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(numbers, min_size=1), st.floats(0, 100))
def test_percentile_is_a_sample_that_enough_do_not_exceed(samples: list[float], percent: float) -> None:
    """No smaller sample meets this definition."""
    found = percentile(samples, percent)
    assert found in samples
    need = percent / 100 * len(samples)
    assert sum(x <= found for x in samples) >= need
    smaller = [x for x in samples if x < found]
    assert not smaller or sum(x <= max(smaller) for x in samples) < need


@pytest.mark.parametrize(("percent", "value"), [(0, 1), (50, 2), (51, 3), (75, 3), (99, 4), (100, 4)])
def test_percentiles_of_four_samples(percent: float, value: float) -> None:
    """Nearest rank, computed by hand."""
    assert percentile([4, 1, 3, 2], percent) == value


@given(st.lists(numbers, min_size=1, max_size=60))
def test_interval_of_the_median_contains_it_and_consists_of_samples(samples: list[float]) -> None:
    """This holds for any samples."""
    low, high = interval(samples)
    assert {low, high} <= set(samples)
    assert low <= percentile(samples, 50) <= high


@pytest.mark.parametrize(("count", "low", "high"), [(1, 1, 1), (5, 1, 5), (6, 1, 6), (9, 2, 8), (20, 6, 15)])
def test_intervals_of_the_median_agree_with_a_table(count: int, low: int, high: int) -> None:
    """They are those of tables of the sign test at 95 %."""
    assert interval(range(1, count + 1)) == (low, high)


def test_no_interval_without_samples() -> None:
    """There is no median."""
    with pytest.raises(ValueError, match="no samples"):
        interval([])


@pytest.mark.parametrize(("samples", "percent"), [([], 50), ([1.0], -1), ([1.0], 100.5)])
def test_no_percentile_without_samples(samples: list[float], percent: float) -> None:
    """Invalid arguments are refused."""
    with pytest.raises(ValueError, match=r"sample|percentage"):
        percentile(samples, percent)


@pytest.mark.parametrize(
    ("value", "goal", "met"), [(1.0, 2.0, True), (2.0, 2.0, True), (2.1, 2.0, False), (1.0, None, None)]
)
def test_goal_is_the_largest_good_value(value: float, goal: float | None, met: bool | None) -> None:
    """It is met up to and including the goal; without a goal that is unknown."""
    assert Figure("x", "ms", value, "scripts/bench x", goal=goal).met is met


def test_json_has_all_documented_keys() -> None:
    """It has all documented keys, computed ones too."""
    figure = Figure.of("put to open", "ms", [1.0, 3.0, 2.0], "scripts/bench resize", goal=5, baseline=[4.0])
    assert json.loads(json.dumps(figure.to_json())) == {
        "name": "put to open",
        "unit": "ms",
        "value": 2.0,
        "goal": 5,
        "met": True,
        "baseline": 4.0,
        "ratio": 0.5,
        "command": "scripts/bench resize",
        "p50": 2.0,
        "p90": 3.0,
        "p99": 3.0,
        "low": None,
        "high": None,
    }


def test_no_ratio_to_nothing() -> None:
    """A baseline of 0 or none gives no ratio."""
    assert Figure("x", "ms", 1, "c").ratio is None
    assert Figure("x", "ms", 1, "c", baseline=0).ratio is None


@pytest.mark.parametrize(
    ("number", "text"),
    [(None, "–"), (0, "0"), (1234.5, "1234"), (12.345, "12.3"), (0.01234, "0.0123"), (1.0, "1.00"), (-2.5, "-2.50")],
)
def test_numbers_have_three_digits(number: float | None, text: str) -> None:
    """They are short, without an exponent."""
    assert short(number) == text


def test_table_shows_missed_goals() -> None:
    """It is aligned, with one line for each figure."""
    lines = table([Figure("good", "ms", 1, "c", goal=2), Figure("bad", "ms", 3, "c", goal=2)]).splitlines()
    assert len({line.index("≤") for line in lines[1:]}) == 1
    assert "met" in lines[1]
    assert "MISSED" in lines[2]


def test_benchmarks_can_be_chosen(tmp_path: Path) -> None:
    """The command line runs one benchmark and writes its JSON; an unknown name is refused with the known ones."""
    command = [sys.executable, "-m", "benchmarks"]
    subprocess.run([*command, "bundle", "--json", tmp_path / "figures.json"], check=True, capture_output=True)
    figures = json.loads((tmp_path / "figures.json").read_text())
    assert [figure["name"] for figure in figures] == ["JavaScript with the page", "JavaScript, all of it"]
    assert [figure["met"] for figure in figures] == [True, True]
    assert figures[0]["value"] < figures[1]["value"]
    refused = subprocess.run([*command, "nothing"], capture_output=True, text=True, check=False)
    assert refused.returncode == 2
    assert "bundle" in refused.stderr
