"""Amounts of GPU and of memory: integers inside, forgiving text outside.

A GPU amount is an ``int`` of thousandths ("milli"), never a float, as CPU amounts are in Kubernetes
(https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/).
"""

from __future__ import annotations

import math
import operator
import re
from contextlib import suppress
from decimal import Decimal
from typing import Any

from .message import Message, gettext

MILLI_PER_GPU = 1000
EXACT_POSITIONS = 10
"""Positions in line up to this one are exact, later ones approximate."""
MAX_MILLI = 1_000_000
"""1,000 GPUs: far above any machine, and far below any overflow."""
MAX_BYTES = 2**53 - 1
"""Most bytes of memory: 8 PiB, the largest integer that JavaScript keeps exact."""

_QUANTITY = re.compile(r"(?P<number>\d{1,9}(?:\.\d{1,9})?)(?P<milli>m?)", re.ASCII)
_BYTES = re.compile(r"(?P<number>\d{1,18}(?:\.\d{1,9})?)\s*(?P<unit>[KMGTP]i?B?|B)?", re.ASCII)
_DIGITS = 12
"""Most digits of a number before the point: more are too large for anything."""
_BINARY = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4, "P": 5}


def parse_milli(value: object) -> int:
    """Read thousandths of a GPU from ``2``, ``0.5``, ``"2"``, ``"0.25"`` or ``"500m"``.

    Also from ``Decimal``, ``Fraction`` and the numbers of NumPy and its like.

    Raises ``ValueError`` with a sentence that says what is wrong: not a number, negative, not finite,
    finer than a thousandth, or above `MAX_MILLI`.
    """
    milli: Decimal | int
    value = plain(value)
    if isinstance(value, str):
        milli = _milli_of_text(value)
    elif isinstance(value, float):
        milli = _milli_of_float(value)
    elif isinstance(value, Decimal):
        milli = _milli_of_decimal(value)
    elif (ratio := _ratio(value)) is not None:
        milli = _milli_of_ratio(value, *ratio)
    else:
        milli = _milli_of_integer(value)
    if milli < 0:
        raise ValueError(gettext("%1 is negative; ask for 0 GPUs or more.", _shown(value)))
    if milli > MAX_MILLI:
        most = MAX_MILLI // MILLI_PER_GPU
        raise ValueError(gettext("%1 is more than %2 GPUs, the most one can ask for.", _shown(value), most))
    if milli != int(milli):
        raise ValueError(gettext("%1 is finer than a thousandth of a GPU; use steps of 0.001.", _shown(value)))
    return int(milli)


def _milli_of_text(text: str) -> Decimal:
    match = _QUANTITY.fullmatch(text.strip().removeprefix("+"))
    if match is None:
        # A minus sign has its own message: it is the most likely mistake after a typing error.
        if _QUANTITY.fullmatch(text.strip().removeprefix("-")):
            return Decimal(-1)
        raise ValueError(_no_amount(_shown(text)))
    number = Decimal(match["number"])
    return number if match["milli"] else number * MILLI_PER_GPU


def _milli_of_float(number: float) -> Decimal:
    if not math.isfinite(number):
        raise ValueError(_no_amount(float(number)))
    # repr gives the shortest text that means this float, so 0.1 is a tenth and not 0.1000000000000000055.
    return Decimal(float.__repr__(number)) * MILLI_PER_GPU


def _milli_of_decimal(number: Decimal) -> Decimal | int:
    if not number.is_finite():
        raise ValueError(_no_amount(number))
    if number and not -_DIGITS < number.adjusted() < _DIGITS:  # its ratio could have a million digits
        return number
    return _milli_of_ratio(number, *number.as_integer_ratio())


def _milli_of_ratio(value: object, numerator: int, denominator: int) -> int:
    milli, rest = divmod(numerator * MILLI_PER_GPU, denominator)
    if rest and milli >= 0:
        raise ValueError(gettext("%1 is finer than a thousandth of a GPU; use steps of 0.001.", _fraction(value)))
    return milli


def _no_amount(shown: object) -> Message:
    return gettext("%1 is not an amount of GPUs; use a number such as 2, 0.5 or '500m'.", shown)


def _fraction(value: object) -> str:
    text = str(value)
    return text if len(text) <= 40 else text[:37] + "…"


def _ratio(value: Any) -> tuple[int, int] | None:
    """Return numerator and denominator of a fraction that is no integer."""
    if isinstance(value, int):
        return None
    ratio = getattr(value, "numerator", None), getattr(value, "denominator", None)
    return ratio if all(type(part) is int for part in ratio) and ratio[1] else None  # type: ignore[return-value]


def plain(value: Any) -> Any:
    """Return a number of NumPy, or of another library with ``item()``, as one of Python; anything else unchanged.

    A float of fewer than 64 bits is read from its text, which is the number that was meant: 0.1, not 0.10000000149.
    """
    try:
        found = value.item()
    except Exception:  # anything may have an attribute of that name, or many items
        return value
    if isinstance(found, float):
        with suppress(ArithmeticError):
            return float(Decimal(str(value)))
    return found


def _milli_of_integer(number: Any) -> int:
    try:
        if not isinstance(number, bool):
            return operator.index(number) * MILLI_PER_GPU
    except TypeError:
        pass
    raise ValueError(_no_amount(_shown(number)))


def format_milli(milli: int) -> str:
    """Write the shortest Kubernetes quantity: ``2000`` → ``"2"``, ``250`` → ``"250m"``."""
    return str(milli // MILLI_PER_GPU) if milli % MILLI_PER_GPU == 0 else f"{milli}m"


def format_gpus(milli: int) -> str:
    """Write an amount for people: ``2000`` → ``"2"``, ``250`` → ``"0.25"``, ``1500`` → ``"1.5"``."""
    whole, rest = divmod(milli, MILLI_PER_GPU)
    return f"{whole}.{rest:03d}".rstrip("0") if rest else str(whole)


def count_gpus(milli: int) -> str:
    """Write an amount with its noun for people: ``"1 GPU"``, ``"0.25 GPU"``, ``"2 GPUs"``, ``"0 GPUs"``."""
    return f"{format_gpus(milli)} GPU" + ("" if _is_one(milli) else "s")


def gpus(milli: int) -> Message:
    """Write the same, to be translated where it is shown."""
    return gettext("%1 GPU", format_gpus(milli)) if _is_one(milli) else gettext("%1 GPUs", format_gpus(milli))


def _is_one(milli: int) -> bool:
    return 0 < milli <= MILLI_PER_GPU


def parse_bytes(value: object) -> int:
    """Read bytes from ``1024``, ``2e9``, ``"20GiB"``, ``"20Gi"``, ``"20GB"`` or ``"512M"``.

    K/M/G/T/P are decimal, Ki… binary. Raises ``ValueError`` with a sentence.
    """
    wrong = gettext("%1 is not an amount of memory; use bytes or text such as '20GiB'.", _shown(value))
    value = plain(value)
    if isinstance(value, str):
        match = _BYTES.fullmatch(value.strip())
        if match is None:
            raise ValueError(wrong)
        unit = (match["unit"] or "").removesuffix("B")
        base = 1024 if unit.endswith("i") else 1000
        amount = int(Decimal(match["number"]) * base ** _POWERS[unit.removesuffix("i")])
    else:
        amount = _whole(value, wrong)
    if not 0 < amount <= MAX_BYTES:
        raise ValueError(
            gettext("%1 of memory is not possible; ask for at least one byte, below 8 PiB.", _shown(value))
        )
    return amount


def _whole(value: Any, wrong: str) -> int:
    """Read a whole number of whatever type."""
    try:
        amount = 0 if isinstance(value, bool) else int(value)
        if amount == value and not isinstance(value, bool):
            return amount
    except Exception:  # noqa: S110 - whatever it is, it is no number
        pass
    raise ValueError(wrong)


def parse_seconds(value: object) -> float | None:
    """Read seconds from any number or a ``timedelta``; None, and what is infinite, for ever.

    Raises ``ValueError`` with a sentence.
    """
    if value is None:
        return None
    seconds = math.nan
    if not isinstance(value, (bool, str, bytes)):
        measure = getattr(value, "total_seconds", None)
        with suppress(Exception):  # whatever it is, it is no number
            seconds = float(measure() if callable(measure) else plain(value))
    if isinstance(value, bool) or isinstance(plain(value), bool) or not seconds >= 0:
        raise ValueError(f"{_shown(value)} is not a number of seconds; use 0 or more, a timedelta, or None for ever.")
    return None if seconds == math.inf else seconds


def format_bytes(amount: int) -> str:
    """Write bytes for people, in binary units: ``85_899_345_920`` → ``"80 GiB"``, ``1536`` → ``"1.5 KiB"``."""
    power = min(max(amount.bit_length() - 1, 0) // 10, len(_BINARY) - 1)
    return f"{amount / 1024**power:.1f}".removesuffix(".0") + f" {_BINARY[power]}"


def _shown(value: object) -> str:
    try:
        text = repr(value)
    except ValueError:  # an int with more digits than Python prints
        text = "that number"
    return text if len(text) <= 40 else text[:37] + "…"
