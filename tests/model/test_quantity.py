"""Amounts of GPU and of memory."""

from __future__ import annotations

import math
from datetime import timedelta
from decimal import Decimal
from fractions import Fraction
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jupyter_gpu.model.quantity import (
    MAX_BYTES,
    MAX_MILLI,
    count_gpus,
    format_bytes,
    format_gpus,
    format_milli,
    parse_bytes,
    parse_milli,
    parse_seconds,
)


@given(st.integers(0, MAX_MILLI))
def test_every_spelling_is_the_same_amount(milli: int) -> None:
    """An amount that is printed for programs or for people is read back as the same amount, exactly."""
    spellings = [format_milli(milli), format_gpus(milli), f"{milli}m", f" +{format_gpus(milli)}\n", milli / 1000]
    assert [parse_milli(spelling) for spelling in spellings] == [milli] * 5


@given(st.text(max_size=30) | st.floats() | st.integers() | st.binary() | st.none() | st.booleans() | st.decimals())
def test_any_value_is_an_amount_or_refused(value: object) -> None:
    """Anything is an amount in range or a ValueError with one short line."""
    try:
        milli = parse_milli(value)
    except ValueError as error:
        says = str(error)
    else:
        says = "."
        assert type(milli) is int
        assert 0 <= milli <= MAX_MILLI
    assert says.endswith(".")
    assert len(says) < 160


class Index:
    """An integer like NumPy's: no int, but exactly one."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __index__(self) -> int:
        return self.value


class OddFloat(float):
    """A float like NumPy's, whose repr is not a number."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)})"


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        *((2, 2000), (0.5, 500), (0.1, 100), (-0.0, 0), (1e3, 1_000_000), (Index(3), 3000), (OddFloat(0.5), 500)),
        *(("2", 2000), ("0.250", 250), ("500m", 500), ("1000", 1_000_000), ("007", 7000)),
    ],
)
def test_numbers_and_quantities_are_thousandths(value: object, milli: int) -> None:
    """Numbers and quantities are thousandths."""
    assert parse_milli(value) == milli


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (-1, "-1 is negative"),
        (-0.001, "-0.001 is negative"),
        ("-500m", "'-500m' is negative"),
        (math.nan, "nan is not an amount"),
        (math.inf, "inf is not an amount"),
        (-math.inf, "-inf is not an amount"),
        (1e9, "more than 1000 GPUs"),
        (1e308, "more than 1000 GPUs"),
        (1000.0005, "more than 1000 GPUs"),
        ("1001", "more than 1000 GPUs"),
        ("9" * 100, "….*is not an amount"),
        ("two", "'two' is not an amount"),
        ("", "is not an amount"),
        ("1e3", "is not an amount"),
        ("0x2", "is not an amount"),
        ("1_000", "is not an amount"),
        (".5", "is not an amount"),
        ("٢", "is not an amount"),
        ("--2", "is not an amount"),
        (0.0001, "finer than a thousandth"),
        (5e-324, "finer than a thousandth"),
        ("0.0001", "finer than a thousandth"),
        ("0.5m", "finer than a thousandth"),
        (True, "True is not an amount"),
        (None, "None is not an amount"),
        ([2], "is not an amount"),
        (b"2", "is not an amount"),
    ],
)
def test_bad_amount_is_refused_by_name(value: Any, says: str) -> None:
    """Each mistake is called by its name."""
    with pytest.raises(ValueError, match=says):
        parse_milli(value)


def test_number_too_long_to_print_is_refused() -> None:
    """Python prints no integer of 5,000 digits; it is refused all the same."""
    huge = 10**5000
    for value, says in ((huge, "that number is more than 1000 GPUs"), (-huge, "that number is negative")):
        with pytest.raises(ValueError, match=says):
            parse_milli(value)
    with pytest.raises(ValueError, match="that number of memory is not possible"):
        parse_bytes(huge)


def test_amount_for_people_is_short() -> None:
    """The shortest text; a decimal fraction of one GPU is singular."""
    assert [format_gpus(m) for m in (0, 1, 250, 1000, 1500, 12_000)] == ["0", "0.001", "0.25", "1", "1.5", "12"]
    assert [format_milli(m) for m in (0, 1, 250, 1000, 1500)] == ["0", "1m", "250m", "1", "1500m"]
    assert [count_gpus(m) for m in (0, 500, 1000, 1001)] == ["0 GPUs", "0.5 GPU", "1 GPU", "1.001 GPUs"]


@pytest.mark.parametrize(
    ("value", "amount"),
    [
        *((1, 1), ("1", 1), ("512B", 512), ("1K", 1000), ("1KB", 1000), ("1KiB", 1024), ("1.5Ki", 1536)),
        *(("20GiB", 20 * 2**30), ("20 GB", 20 * 10**9), ("8191Ti", 8191 * 2**40), (MAX_BYTES, MAX_BYTES)),
    ],
)
def test_memory_has_decimal_and_binary_units(value: object, amount: int) -> None:
    """Both kinds of units are read."""
    assert parse_bytes(value) == amount


@pytest.mark.parametrize("value", [0, -1, "0", "0.1", "-1", "8PiB", MAX_BYTES + 1, "much", "", "1 GPU", "٢K"])
def test_impossible_memory_is_refused(value: object) -> None:
    """Nothing, less, and more than JavaScript can count are refused."""
    with pytest.raises(ValueError, match="memory"):
        parse_bytes(value)


@pytest.mark.parametrize("value", [True, 1.5, None, b"1", [1]])
def test_memory_is_a_whole_number_or_text(value: object) -> None:
    """Memory is a whole number or text."""
    with pytest.raises(ValueError, match="not an amount of memory"):
        parse_bytes(value)


@given(st.integers(1, 7 * 2**50))
def test_memory_for_people_is_exact(amount: int) -> None:
    """The text is the amount, to the digit that is shown."""
    shown = format_bytes(amount)
    assert abs(parse_bytes(shown) - amount) <= amount * 0.05 + 1


def test_memory_unit_changes_at_its_own_size() -> None:
    """The last unit takes everything above."""
    sizes = {
        0: "0 B",
        1: "1 B",
        1023: "1023 B",
        1024: "1 KiB",
        1536: "1.5 KiB",
        85_899_345_920: "80 GiB",
        2**62: "4096 PiB",
    }
    assert {amount: format_bytes(amount) for amount in sizes} == sizes


class Scalar:
    """A number like NumPy's with 32 bits: `item` is the nearest number of 64 bits, its text is what was meant."""

    def __init__(self, item: Any, text: str = "") -> None:
        self._item, self._text = item, text or str(item)

    def item(self) -> Any:
        if isinstance(self._item, Exception):
            raise self._item
        return self._item

    def __str__(self) -> str:
        return self._text


@pytest.mark.parametrize(
    ("value", "milli"),
    [
        (Decimal("0.25"), 250),
        (Decimal(2), 2000),
        (Fraction(1, 2), 500),
        (Fraction(3), 3000),
        (Scalar(2), 2000),
        (Scalar(0.10000000149011612, "0.1"), 100),
        (Scalar(0.5, "tensor(0.5000)"), 500),
    ],
)
def test_numbers_of_other_types_are_exact(value: object, milli: int) -> None:
    """Each number counts as exactly its value."""
    assert parse_milli(value) == milli


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (Decimal("0.0001"), "finer than a thousandth"),
        (Decimal("NaN"), "not an amount"),
        (Decimal("1e999999"), "more than 1000 GPUs"),
        (Decimal("1." + "0" * 40 + "1"), "finer than a thousandth"),
        (Decimal(-1), "negative"),
        (Fraction(1, 3), "1/3 is finer than a thousandth"),
        (Fraction(-1, 2), "negative"),
        (Fraction(-1, 3), "negative"),
        (Decimal("1e-999999"), "finer than a thousandth"),
        (Fraction(10**50 + 1, 10**50), "… is finer than a thousandth"),
        (Fraction(10**9, 1), "more than 1000 GPUs"),
        (Scalar(True), "not an amount"),
        (Scalar(math.nan), "not an amount"),
        (Scalar(ValueError("many")), "not an amount"),
    ],
)
def test_other_types_are_refused_in_the_same_words(value: object, says: str) -> None:
    """Refused in the same words as plain numbers."""
    with pytest.raises(ValueError, match=says):
        parse_milli(value)


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        (math.inf, None),
        (0, 0.0),
        (2.5, 2.5),
        (Decimal("0.5"), 0.5),
        (Fraction(1, 4), 0.25),
        (timedelta(minutes=1), 60.0),
        (Scalar(0.5), 0.5),
    ],
)
def test_timeout_is_a_number_a_timedelta_or_for_ever(value: object, seconds: float | None) -> None:
    """Any number, a timedelta, or for ever."""
    assert parse_seconds(value) == seconds


@pytest.mark.parametrize(
    "value",
    [-1, math.nan, "60", b"1", True, [], 1j, 10**400, timedelta(seconds=-1), Scalar(True), Decimal("NaN"), -math.inf],
)
def test_bad_timeout_is_refused(value: object) -> None:
    """One sentence that says what is accepted."""
    with pytest.raises(ValueError, match="is not a number of seconds; use 0 or more, a timedelta, or None for ever"):
        parse_seconds(value)


@pytest.mark.parametrize("value", [2e9, Decimal(2_000_000_000), Fraction(2_000_000_000), Scalar(2_000_000_000)])
def test_whole_number_of_any_type_is_bytes(value: object) -> None:
    """A whole number is one, whatever its type."""
    assert parse_bytes(value) == 2 * 10**9


@pytest.mark.parametrize("value", [1.5, math.inf, math.nan, None, True, [], Scalar(1.5)])
def test_parts_of_a_byte_are_refused(value: object) -> None:
    """A part of a byte and a value that is no number are refused."""
    with pytest.raises(ValueError, match="is not an amount of memory"):
        parse_bytes(value)
