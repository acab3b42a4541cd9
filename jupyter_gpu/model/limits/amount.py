"""Values of limits: amounts with the word ``unlimited``, durations, and names of GPU models."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from decimal import Decimal
from enum import Enum
from typing import Any, Final, TypeAlias

from .. import strict
from ..message import gettext, message_of
from ..quantity import format_milli, parse_bytes, parse_milli


class Unlimited(Enum):
    """The type of `UNLIMITED`, which is no number: a calculation that forgets it fails."""

    UNLIMITED = "unlimited"


UNLIMITED: Final = Unlimited.UNLIMITED
"""No limit of this level."""

Amount: TypeAlias = int | Unlimited
"""Milli of GPUs, bytes, seconds or milli-GPU-seconds; or no limit."""

MAX_SECONDS = 366 * 24 * 3600
_UNITS = {"h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
_SIZES = (("Pi", 2**50), ("Ti", 2**40), ("Gi", 2**30), ("Mi", 2**20), ("Ki", 2**10))
_DURATION = re.compile(r"(?:\d{1,9}(?:\.\d{1,9})?(?:ms|[hms]))+", re.ASCII)
_PART = re.compile(r"([\d.]+)(ms|[hms])", re.ASCII)


def smaller(first: Amount, second: Amount) -> Amount:
    """Return the smaller amount; `UNLIMITED` is the largest of all."""
    return first if amount_key(first) <= amount_key(second) else second


def larger(first: Amount, second: Amount) -> Amount:
    """Return the larger amount; `UNLIMITED` is the largest of all."""
    return first if amount_key(first) >= amount_key(second) else second


def least(amounts: Iterable[Amount]) -> Amount:
    """Return the smallest of ``amounts``; `UNLIMITED` where there are none."""
    return min(amounts, key=amount_key, default=UNLIMITED)


def amount_key(amount: Amount) -> tuple[bool, int]:
    """Return a key that sorts amounts, `UNLIMITED` last."""
    return (True, 0) if isinstance(amount, Unlimited) else (False, amount)


def says_unlimited(value: object) -> bool:
    """Tell whether ``value`` is the word ``unlimited``, in any case."""
    return isinstance(value, str) and value.strip().lower() == UNLIMITED.value


def parse_amount(value: object) -> Amount:
    """Read milli of GPUs from a quantity or the word ``unlimited``; raises ``ValueError`` with a sentence."""
    if says_unlimited(value):
        return UNLIMITED
    try:
        return parse_milli(value)
    except ValueError as error:
        raise ValueError(gettext("%1 Or write unlimited for no limit.", message_of(error))) from None


def format_amount(amount: Amount) -> str:
    """Write milli of GPUs as a quantity or ``unlimited``; `parse_amount` reads it."""
    return UNLIMITED.value if isinstance(amount, Unlimited) else format_milli(amount)


def parse_memory(value: object) -> Amount:
    """Read bytes, 0 or ``unlimited``; raises ``ValueError`` with a sentence."""
    if says_unlimited(value):
        return UNLIMITED
    return 0 if value in (0, "0") and not isinstance(value, bool) else parse_bytes(value)


def format_memory(amount: Amount) -> str:
    """Write bytes as ``40Gi``, or all of them where that is not exact; `parse_memory` reads it."""
    if isinstance(amount, Unlimited):
        return UNLIMITED.value
    for unit, size in _SIZES:  # of more than six digits, all bytes are easier to read
        if amount and amount % size == 0 and amount // size < 10**6:
            return f"{amount // size}{unit}"
    return str(amount)


def parse_duration(value: object, shortest: int) -> int:
    """Read whole seconds from ``4h``, ``90m`` or ``1h30m``; raises ``ValueError`` with a sentence.

    The syntax is that of Go and of Kubernetes' ``duration()``: https://pkg.go.dev/time#ParseDuration
    """
    text = value.strip() if isinstance(value, str) else ""
    if text == "0":
        text = "0s"
    if not _DURATION.fullmatch(text):
        raise ValueError(gettext("%1 is not a duration; write it as 10m, 4h or 1h30m.", _shown(value)))
    seconds = sum((Decimal(number) * _UNITS[unit] for number, unit in _PART.findall(text)), Decimal(0))
    if not shortest <= seconds <= MAX_SECONDS:
        raise ValueError(
            gettext("%1 must be from %2 to %3.", _shown(value), format_duration(shortest), format_duration(MAX_SECONDS))
        )
    return int(seconds)


def format_duration(seconds: int) -> str:
    """Write seconds as ``1h30m``; `parse_duration` reads it."""
    hours, rest = divmod(seconds, 3600)
    minutes, rest = divmod(rest, 60)
    return "".join(f"{n}{unit}" for n, unit in ((hours, "h"), (minutes, "m"), (rest, "s")) if n) or "0s"


def model_key(words: str) -> str:
    """Return the words of a GPU model as they are compared: ``A100-SXM4`` and ``a100 sxm4`` are one."""
    return " ".join(re.findall(r"\w+", words.casefold().replace("_", " ")))


def reader(parse: Callable[[Any], Any]) -> Callable[[Any, str], Any]:
    """Make a reader, for `strict`, of a function that raises ``ValueError``."""

    def read(value: Any, key: str) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            raise strict.FieldError(gettext("%1 can't be read: %2", repr(key), message_of(error)), key) from None

    return read


def _shown(value: object) -> str:
    return strict.printable(repr(value), 40)
