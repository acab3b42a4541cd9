"""The history of samples: bounded in bytes, exact lately, coarser further back."""

from __future__ import annotations

import json
import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.history import MAX_HISTORY_BYTES, TIERS, Point, SampleHistory, joined
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu.model.view import GpuLoad, Sample


def sample(time: float, *loads: float | None, shares: int = 0) -> Sample:
    """At ``time``; one GPU for each of ``loads``, and ``shares`` time shares that ran all the time."""
    total = int(time * 1e6)
    use = {
        f"GPU-{i}": ShareUse(f"GPU-{i}", 250, 250, total, 0, 0, 0, 0, 0, 0, 0, 0, 2**21, None, 2, 100_000)
        for i in range(shares)
    }
    return Sample(time, {f"GPU-{i}": GpuLoad(load, 2**30) for i, load in enumerate(loads)}, use)


def filled(times: list[float], most_bytes: int = MAX_HISTORY_BYTES, capacity: int = 10**6) -> SampleHistory:
    """A history of samples a second apart at these times."""
    history = SampleHistory(1.0, capacity, most_bytes)
    for time in times:
        history.push(sample(time, time % 101))
    return history


def times(history: SampleHistory) -> list[float]:
    """Return the times of its points."""
    return [point.sample.time for point in history]


def test_samples_are_kept_while_they_fit() -> None:
    """Nothing is joined without need."""
    points = json.loads(filled([1, 2, 3]).message())["points"]
    assert points == [sample(time, float(time)).to_json() for time in (1, 2, 3)]


def test_ten_thousand_samples_of_eight_shares_fit_into_a_megabyte_and_reach_back_to_the_first() -> None:
    """The newest are exact, and none is farther from the next than a part of its age."""
    history = SampleHistory(1.0, 10_000)
    for time in range(1, 10_001):
        history.push(sample(float(time), *(50.0,) * 8, shares=8))
    message = history.message()
    assert len(message) <= MAX_HISTORY_BYTES + 100
    points = json.loads(message)["points"]
    assert points[0].get("since", 1) <= 1
    newest = [point["time"] for point in points][-40:]
    assert newest == [float(time) for time in range(9961, 10_001)]
    assert all(b["time"] - a["time"] <= max(1, (10_001 - a["time"]) / 2) for a, b in pairwise(points))
    assert points[5]["shares"]["GPU-7"]["guaranteed"] == points[5]["time"] * 1e6  # totals stay totals


def test_message_is_encoded_once_for_all_tabs() -> None:
    """It is the very same text until there is another sample."""
    history = filled([1, 2])
    assert history.message() is history.message()
    before = history.message()
    history.push(sample(3, 1.0))
    assert history.message() != before


def test_gap_is_never_bridged() -> None:
    """No point claims to know the load for a time without samples."""
    history = filled([*range(1, 200), *range(1000, 1200)], most_bytes=2_000)
    for before, point in pairwise(history):
        assert not before.sample.time < 199 < point.sample.time or point.since is None
        if point.sample.time >= 1000:
            assert point.since is None or point.since >= 1000


def test_clock_set_back_begins_a_new_history() -> None:
    """Times of a page's charts only ever grow."""
    assert times(filled([100, 101, 50, 51])) == [50, 51]


@pytest.mark.parametrize(
    ("before", "after", "mean"), [(10, 40, 30.0), (None, 40, 40), (10, None, 10), (None, None, None)]
)
def test_coarse_point_has_the_mean_load(before: float | None, after: float | None, mean: float | None) -> None:
    """The mean is weighted by how many samples each stands for; memory and totals are the last."""
    first, second = Point.of(sample(1, before), 0.0), Point.of(sample(3, after), 1.0, 2)
    both = joined(first, second)
    assert (both.sample.loads["GPU-0"].utilisation, both.samples, both.since) == (mean, 3, 0.0)
    assert json.loads(both.text)["since"] == 0.0


def test_later_gpu_has_its_own_load() -> None:
    """A GPU that came between two samples is not taken for idle before."""
    both = joined(Point.of(sample(1, 10), None), Point.of(sample(2, 10, 90), 1.0))
    assert both.sample.loads["GPU-1"].utilisation == 90


def test_history_without_room_keeps_nothing() -> None:
    """Neither a bound below one sample nor a history of 0 keeps anything."""
    assert times(filled([1, 2, 3], most_bytes=10)) == []
    assert times(filled([1, 2, 3], capacity=0)) == []


def test_point_of_the_last_tier_is_dropped() -> None:
    """The tiers have an end, reached by samples with gaps between all of them."""
    history = filled([10.0 * n for n in range(1, 400)], most_bytes=3_000)
    assert times(history)[-1] == 3990
    assert all(point.samples == 1 for point in history)


steps = st.lists(st.sampled_from([0.5, 1.0, 1.0, 1.0, 2.9, 3.1, 60.0, -5.0]), max_size=200)


@given(steps, st.integers(0, 4_000), st.integers(0, 300))
def test_history_holds_its_bounds_for_any_samples(steps: list[float], most_bytes: int, capacity: int) -> None:
    """Bytes and samples are bounded, times ascend, spans follow each other, the newest is kept."""
    history, time = SampleHistory(1.0, capacity, most_bytes), 1000.0
    for step in steps:
        time += step
        history.push(sample(time, 50.0))
        assert sum(len(point.text) + 1 for point in history) <= most_bytes
        points = list(history)
        assert sum(point.samples for point in points[1:]) < max(1, capacity)
        if points:
            assert points[-1].sample.time == time
    points = list(history)
    assert all(a.sample.time < b.sample.time for a, b in pairwise(points))
    levels = [math.ceil(math.log2(point.samples)) for point in points]
    assert all(0 <= level < TIERS for level in levels)
    for before, point in pairwise(points):
        assert point.since in (None, before.sample.time)
        assert point.since is None or point.since < point.sample.time
    parsed = [Sample.from_json(body) for body in json.loads(history.message())["points"]]
    assert parsed == [point.sample for point in points]
