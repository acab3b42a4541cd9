"""Samples of how busy GPUs are: a peak is known only for a time in which nothing was missed."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu_node.gpus.rules.busy import GAP, INTERVAL, KEPT, BusySamples

STEPS = st.lists(st.tuples(st.floats(0.01, 2.5), st.none() | st.integers(0, 100)), max_size=30)


@given(STEPS, st.floats(0, 20), st.floats(0, 3))
def test_peak_is_that_of_all_samples_or_unknown(
    steps: list[tuple[float, int | None]], back: float, later: float
) -> None:
    """As if all samples were kept and looked through; a GPU that was used never passes for one that was not."""
    samples, now, taken = BusySamples(), 100.0, list[tuple[float, int | None]]()
    for pause, percent in steps:
        now += pause
        samples.add(now, {"g": percent, "other": 0})
        taken.append((now, percent))
    now += later
    since = now - back
    known = [at for at, percent in taken if percent is not None and at >= since]
    around = [at for at, percent in taken if percent is not None and at >= since - KEPT]
    told = samples.peak("g", since, now)
    if told is None:
        return
    inside = [percent for at, percent in taken if percent is not None and at >= since]
    assert told == max(inside)
    assert min(around) <= since + GAP
    assert max(around) >= now - GAP
    assert all(after - before <= GAP for before, after in pairwise(known))


def test_steady_samples_tell_the_peak() -> None:
    """As soon as they reach back so far; what is older than that does not count."""
    samples = BusySamples()
    for number in range(50):
        samples.add(number * INTERVAL, {"g": 80 if number == 10 else 0})
    now = 49 * INTERVAL
    assert samples.peak("g", now - 5, now) == 0
    assert samples.peak("g", 1.5, now) == 80
    assert samples.peak("g", -2, now) is None, "nothing is known of the time before"
    assert samples.peak("other", now - 5, now) is None


def test_old_samples_are_dropped() -> None:
    """Nothing grows for ever."""
    samples = BusySamples()
    for second in range(int(KEPT) * 2):
        samples.add(float(second), {"g": 0})
    now = KEPT * 2 - 1
    assert samples.peak("g", now - KEPT - 5, now) is None
    assert samples.peak("g", now - KEPT + 1, now) == 0


def test_gpu_that_could_not_be_read_is_not_known() -> None:
    """It may have worked meanwhile."""
    samples = BusySamples()
    samples.add(0, {"g": 0})
    samples.add(0.2, {"g": None})
    assert samples.peak("g", 0, 0.2) is None
