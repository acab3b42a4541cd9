"""The recipes of docs/limits.md: values of the chart, and who may have how many GPUs by them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

import yaml

from jupyter_gpu.model.limits.amount import Amount, Unlimited
from jupyter_gpu.model.limits.calendar import in_force
from jupyter_gpu.model.limits.effective import effective
from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.quantity import MILLI_PER_GPU

from . import product

PAGE = product.ROOT / "docs" / "limits.md"
MONDAY = date(2026, 11, 23)
"""The first day of the week that the tables are about: no clock is changed in it."""
_WHO = re.compile(r"(namespace )?(\w+)(?: of (\w+))?(?: at (\w+))?")
_HOURS_USED = re.compile(r"after (\d+) GPU-hours")


@dataclass(frozen=True)
class Row:
    """One row of a recipe's table, as it is written."""

    who: str
    when: str
    most: str
    guaranteed: str


@dataclass(frozen=True)
class Recipe:
    """Values of the chart, and the table of what they lead to."""

    title: str
    values: dict[str, Any]
    rows: tuple[Row, ...]

    @property
    def zone(self) -> tzinfo:
        """Return the time zone of the hours."""
        return ZoneInfo(self.values["limits"].get("timeZone", "UTC"))


def recipes() -> tuple[Recipe, ...]:
    """Read the page."""
    _, *parts = PAGE.read_text().split("\n## ")
    return tuple(_recipe(part) for part in parts)


def _recipe(text: str) -> Recipe:
    (values,) = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)
    lines = [line for line in text.splitlines() if line.startswith("| ")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0] == ["who", "when", "at most", "guaranteed"]
    return Recipe(text.partition("\n")[0], yaml.safe_load(values), tuple(Row(*row) for row in cells[1:]))


def outcome(recipe: Recipe, row: Row, limits: Iterable[Limit]) -> Row:
    """Return the row as it is by these limits, as they are in the cluster: with the members that the row names."""
    match = _WHO.fullmatch(row.who)
    assert match, row.who
    namespace, name, group, hub = match.groups()
    owner = Owner("Namespace", name) if namespace else Owner("User", name, hub or "jhub")
    mine = [
        replace(limit, members=frozenset({name}) if limit.subject and limit.subject.name == group else frozenset())
        for limit in limits
    ]
    found = effective(owner, mine)
    now, used = _moment(row.when, recipe.zone)
    force = in_force(found, now, recipe.zone, used)
    models = "".join(f", of {word.upper()} {_written(most.value)}" for word, most in found.models.items())
    return replace(row, most=f"{_written(force.max.value)}{models}", guaranteed=_written(force.guaranteed.value))


def _written(amount: Amount) -> str:
    return "unlimited" if isinstance(amount, Unlimited) else f"{amount / MILLI_PER_GPU:g}"


def _moment(when: str, zone: tzinfo) -> tuple[float, dict[date, int]]:
    """Return the time, and the milli-GPU-seconds used by day."""
    hours = _HOURS_USED.fullmatch(when)
    day, _, clock = ("Mon 12:00" if hours or not when else when).partition(" ")
    number = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun").index(day)
    moment = datetime.combine(MONDAY + timedelta(number), datetime.strptime(clock, "%H:%M").time(), zone)
    return moment.timestamp(), {MONDAY: int(hours[1]) * 3_600_000} if hours else {}
