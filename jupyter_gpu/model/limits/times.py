"""Budgets and hours as a limit states them, read and written; `calendar` applies them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from decimal import Decimal
from enum import StrEnum
from typing import Any

from .. import strict
from ..message import gettext
from .amount import UNLIMITED, Amount, Unlimited, format_amount, parse_amount, reader, says_unlimited

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MINUTES = 24 * 60
MAX_HOURS = 10_000_000
"""Most GPU-hours of a budget: 1,000 GPUs for a year are fewer."""
HOUR = 3600 * 1000
"""One GPU for an hour, in milli-GPU-seconds."""
_CLOCK = re.compile(r"([01]\d|2[0-3]):([0-5]\d)|24:00", re.ASCII)
_GPU_HOURS = re.compile(r"\d{1,9}(?:\.\d{1,12})?", re.ASCII)


class BudgetWindow(StrEnum):
    """A fixed window of the calendar: it begins at midnight, a week on Monday, a month on its first day."""

    DAY = "Day"
    WEEK = "Week"
    MONTH = "Month"


@dataclass(frozen=True, slots=True)
class Budget:
    """The GPU time that may be held in one window of the calendar."""

    amount: Amount
    """Milli-GPU-seconds: half a GPU for an hour is 1,800,000."""
    window: BudgetWindow

    def to_json(self) -> dict[str, Any]:
        """Return ``{"gpuHours": 100, "window": "Month"}``."""
        return {"gpuHours": format_gpu_hours(self.amount), "window": self.window.value}

    @classmethod
    def from_json(cls, value: Any, key: str = "budget") -> Budget:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        strict.no_unknown(body, ("gpuHours", "window"))
        window = strict.required(body, "window", strict.one_of(*BudgetWindow))
        return cls(strict.required(body, "gpuHours", reader(parse_gpu_hours)), BudgetWindow(window))


@dataclass(frozen=True, slots=True)
class Hours:
    """A maximum for some hours of some days of the week, in the installation's time zone."""

    max: Amount
    """Milli."""
    days: frozenset[int] = frozenset(range(7))
    """Days on which the hours begin: Monday is 0, Sunday 6."""
    start: int = 0
    """Minutes after midnight."""
    end: int = MINUTES
    """Minutes after midnight; less than ``start``: on the day after."""

    def to_json(self) -> dict[str, Any]:
        """Return ``{"days": ["Mon", "Tue"], "from": "08:00", "to": "18:00", "max": "1"}``."""
        return {
            "days": [DAYS[day] for day in sorted(self.days)],
            "from": format_clock(self.start),
            "to": format_clock(self.end),
            "max": format_amount(self.max),
        }

    @classmethod
    def from_json(cls, value: Any, key: str = "hours") -> Hours:
        """Read and check the JSON; raises `FieldError`.

        Without ``days`` it is for every day; ``to`` before ``from`` is on the next day.
        """
        body = strict.an_object(value, key)
        strict.no_unknown(body, ("days", "from", "to", "max"))
        days = strict.optional(body, "days", strict.list_of(strict.one_of(*DAYS), 7))
        if days is not None and (not days or len(set(days)) < len(days)):
            raise strict.FieldError(gettext("'days' must name one day or more, each once."), "days")
        start, end = strict.required(body, "from", _read_start), strict.required(body, "to", parse_clock)
        if start == end:
            raise strict.FieldError(gettext("'from' and 'to' must differ; the whole day is from 00:00 to 24:00."), "to")
        return cls(
            max=strict.required(body, "max", reader(parse_amount)),
            days=frozenset(map(DAYS.index, days or DAYS)),
            start=start,
            end=end,
        )


def parse_clock(value: Any, key: str) -> int:
    """Read minutes after midnight from ``08:00``; ``24:00`` is the end of the day."""
    match = _CLOCK.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise strict.FieldError(gettext("%1 must be a time of day such as 08:00.", repr(key)), key)
    return int(match[1]) * 60 + int(match[2]) if match[1] else MINUTES


def _read_start(value: Any, key: str) -> int:
    start = parse_clock(value, key)
    if start == MINUTES:
        raise strict.FieldError(gettext("'from' must be from 00:00 to 23:59."), key)
    return start


def format_clock(minutes: int) -> str:
    """Write minutes after midnight as ``08:00``; `parse_clock` reads it."""
    return f"{minutes // 60:02}:{minutes % 60:02}"


def parse_gpu_hours(value: object) -> Amount:
    """Read milli-GPU-seconds from GPU-hours, ``100`` or ``0.5``, or ``unlimited``; raises ``ValueError``."""
    if says_unlimited(value):
        return UNLIMITED
    text = str(value).strip() if isinstance(value, (str, int, float)) else ""
    if _GPU_HOURS.fullmatch(text) and Decimal(text) <= MAX_HOURS:
        return round(Decimal(text) * HOUR)
    shown = strict.printable(repr(value), 40)
    raise ValueError(f"{shown} is not a number of GPU-hours from 0 to {MAX_HOURS:,}; use a number such as 100 or 0.5.")


def format_gpu_hours(amount: Amount) -> int | str:
    """Write milli-GPU-seconds as GPU-hours: a whole number, else text such as ``0.5``, or ``unlimited``."""
    if isinstance(amount, Unlimited):
        return UNLIMITED.value
    hours, rest = divmod(amount, HOUR)
    # A part is written with the digits that give it back: an hour has less than 10**7 milli-GPU-seconds.
    return f"{Decimal(amount) / HOUR:.10f}".rstrip("0") if rest else hours
