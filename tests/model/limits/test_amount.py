"""Amounts, durations and words of models in limits."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.limits.amount import (
    MAX_SECONDS,
    UNLIMITED,
    Amount,
    amount_key,
    format_amount,
    format_duration,
    format_memory,
    larger,
    least,
    model_key,
    parse_amount,
    parse_duration,
    parse_memory,
    smaller,
)
from jupyter_gpu.model.limits.times import Budget, format_gpu_hours, parse_gpu_hours
from jupyter_gpu.model.quantity import MAX_BYTES

from .strategies import amounts, budgets

memories = st.just(UNLIMITED) | st.integers(0, MAX_BYTES) | st.integers(0, 64).map(lambda n: n * 2**30)


@given(amounts, amounts)
def test_unlimited_is_the_largest(first: Amount, second: Amount) -> None:
    """Smaller and larger give the two amounts, and unlimited is more than any number."""
    assert {smaller(first, second), larger(first, second)} == {first, second}
    assert amount_key(smaller(first, second)) <= amount_key(larger(first, second))
    assert larger(first, UNLIMITED) is UNLIMITED
    assert smaller(first, UNLIMITED) == first
    assert least([first, second]) == smaller(first, second)
    assert least([]) is UNLIMITED


@given(amounts, memories, st.integers(0, MAX_SECONDS), budgets)
def test_values_survive_a_round_trip(amount: Amount, memory: Amount, seconds: int, budget: Budget) -> None:
    """Each value is read as it was written."""
    assert parse_amount(format_amount(amount)) == amount
    assert parse_memory(format_memory(memory)) == memory
    assert parse_duration(format_duration(seconds), 0) == seconds
    assert parse_gpu_hours(format_gpu_hours(budget.amount)) == budget.amount
    assert Budget.from_json(budget.to_json()) == budget


@pytest.mark.parametrize(
    ("parse", "text", "value"),
    [
        (parse_amount, 2, 2000),
        (parse_amount, "500m", 500),
        (parse_amount, " Unlimited ", UNLIMITED),
        (parse_amount, 0, 0),
        (parse_memory, "40Gi", 40 * 2**30),
        (parse_memory, "0", 0),
        (parse_memory, 0, 0),
        (parse_memory, "unlimited", UNLIMITED),
        (lambda text: parse_duration(text, 0), "1h30m", 5400),
        (lambda text: parse_duration(text, 0), "1.5h", 5400),
        (lambda text: parse_duration(text, 0), "90500ms", 90),
        (lambda text: parse_duration(text, 0), "0", 0),
        (parse_gpu_hours, 100, 360_000_000),
        (parse_gpu_hours, 0.5, 1_800_000),
        (parse_gpu_hours, "0.5", 1_800_000),
        (parse_gpu_hours, "unlimited", UNLIMITED),
    ],
)
def test_values_have_several_forms(parse: Callable[[Any], Any], text: Any, value: Any) -> None:
    """A value may be written as people and Kubernetes write it."""
    assert parse(text) == value


@pytest.mark.parametrize(
    ("parse", "text", "says"),
    [
        (parse_amount, -1, "is negative.* Or write unlimited"),
        (parse_amount, "many", "is not an amount of GPUs.* Or write unlimited"),
        (parse_amount, True, "is not an amount of GPUs"),
        (parse_amount, [], "is not an amount of GPUs"),
        (parse_memory, "soon", "is not an amount of memory"),
        (parse_memory, False, "is not an amount of memory"),
        (lambda text: parse_duration(text, 0), "10 min", "is not a duration; write it as 10m, 4h or 1h30m"),
        (lambda text: parse_duration(text, 0), 600, "is not a duration"),
        (lambda text: parse_duration(text, 0), "-1h", "is not a duration"),
        (lambda text: parse_duration(text, 60), "59s", "must be from 1m to 8784h"),
        (lambda text: parse_duration(text, 0), "9999h", "must be from 0s to 8784h"),
        (parse_gpu_hours, -1, "is not a number of GPU-hours"),
        (parse_gpu_hours, 10**8, "is not a number of GPU-hours from 0 to 10,000,000"),
        (parse_gpu_hours, True, "is not a number of GPU-hours"),
        (parse_gpu_hours, None, "is not a number of GPU-hours"),
        (parse_gpu_hours, "1_0", "is not a number of GPU-hours"),
    ],
)
def test_bad_values_are_refused_with_a_sentence(parse: Callable[[Any], Any], text: Any, says: str) -> None:
    """A value that cannot be meant is refused, and the sentence says how to write it."""
    with pytest.raises(ValueError, match=says):
        parse(text)


def test_short_forms_are_used() -> None:
    """Values are written as people would."""
    assert format_memory(40 * 2**30) == "40Gi"
    assert format_memory(0) == "0"
    assert format_memory(10**6 * 2**10) == "1024000000"  # not 1000000Ki
    assert format_duration(5400) == "1h30m"
    assert format_duration(0) == "0s"
    assert format_gpu_hours(360_000_000) == 100
    assert format_gpu_hours(1_800_000) == "0.5"


def test_models_are_compared_by_their_words() -> None:
    """Case, hyphens and underscores make no other model."""
    assert model_key("A100-SXM4_80GB") == model_key(" a100 sxm4 80gb")
    assert model_key("A10") != model_key("A100")
