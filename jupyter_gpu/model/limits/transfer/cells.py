"""Cells of a table: values as people write them, which no spreadsheet takes for formulas.

Lists have a short form, ``A100=1; H100=unlimited`` and ``Mon-Fri 08:00-18:00=1``, or JSON where that is ambiguous.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from ... import strict
from ..times import DAYS

FORMULA = "=+-@\t\r\n＝＋－＠"
"""First letters by which spreadsheets know a formula (https://owasp.org/www-community/attacks/CSV_Injection)."""
QUOTE = "'"
"""Before a cell it makes a spreadsheet show the cell as text."""
MAX_CELL = 16 * 1024
"""Most bytes of a list as JSON."""

_BEGIN = r"(?:^|(?<=[,;\t\r\n]))"
_RUNS = f"['\"]*[{re.escape(FORMULA)}]"
_PLAIN = re.compile(r"[^;=\[\]]*[^;=\[\]\s]")
_DAYS = re.compile(r"([A-Za-z]{3})(?:\s*-\s*([A-Za-z]{3}))?[\s,]+", re.ASCII)
_HOURS = re.compile(r"(?P<start>[^\s-]+)\s*-\s*(?P<end>[^\s=]+)\s*=\s*(?P<max>\S+)")
_BUDGET = re.compile(r"(?P<hours>[^/\s]+)\s*(?:/|per)\s*(?P<window>\w+)", re.IGNORECASE)


def protect(cell: str) -> str:
    """Return a cell that no spreadsheet runs; `expose` gives it back unchanged.

    Within the cell, too, what follows a separator is protected: a spreadsheet that expects another separator than the
    table has divides cells there, quotation marks or not.
    """
    return re.sub(f"{_BEGIN}(?={_RUNS})", QUOTE, cell)


def expose(cell: str) -> str:
    """Return a cell as it was before `protect`."""
    return re.sub(f"{_BEGIN}{QUOTE}(?={_RUNS})", "", cell)


def models_cell(models: Sequence[Mapping[str, Any]]) -> str:
    """Write the models of a spec: ``A100=1; H100=unlimited``."""
    if all(_PLAIN.fullmatch(item["model"]) and item["model"] == item["model"].strip() for item in models):
        return "; ".join(f"{item['model']}={item['max']}" for item in models)
    return strict.dumps(models)


def read_models(cell: str) -> Any:
    """Read the models of a spec; raises `FieldError`. Their values are checked with the spec."""
    if cell.startswith("["):
        return strict.loads(cell, MAX_CELL)
    found = []
    for part in _parts(cell):
        model, equals, most = part.rpartition("=")
        if not equals:
            raise strict.FieldError(
                f"'models' must be such as A100=1; H100=unlimited, and not {_shown(part)}.", "models"
            )
        found.append({"model": model.strip(), "max": most.strip()})
    return found


def hours_cell(hours: Sequence[Mapping[str, Any]]) -> str:
    """Write the hours of a spec: ``Mon-Fri 08:00-18:00=1; Sun 00:00-24:00=4``; ``none`` if there are none."""
    parts = (f"{_days_text(item['days'])}{item['from']}-{item['to']}={item['max']}" for item in hours)
    return "; ".join(parts) or "none"


def read_hours(cell: str) -> Any:
    """Read the hours of a spec; raises `FieldError`. Their values are checked with the spec."""
    if cell.strip().lower() == "none":
        return []
    found = []
    for part in _parts(cell):
        days: list[str] = []
        at = 0
        while match := _DAYS.match(part, at):
            days += _days_between(match[1].capitalize(), (match[2] or match[1]).capitalize())
            at = match.end()
        times = _HOURS.fullmatch(part, at)
        if times is None:
            raise strict.FieldError(f"'hours' must be such as Mon-Fri 08:00-18:00=1, and not {_shown(part)}.", "hours")
        item = {"from": times["start"], "to": times["end"], "max": times["max"]}
        found.append({**({"days": days} if days else {}), **item})
    return found


def _days_text(days: Sequence[str]) -> str:
    """Write days in their order in the week: ``Mon-Fri``, ``Mon Wed``; nothing for all of them."""
    if len(days) == len(DAYS):
        return ""
    run = len(days) > 2 and DAYS.index(days[-1]) - DAYS.index(days[0]) == len(days) - 1
    return f"{days[0]}-{days[-1]} " if run else " ".join(days) + " "


def _days_between(first: str, last: str) -> list[str]:
    """List the days from ``first`` to ``last``, over the end of the week too; a word that is no day stays."""
    if first not in DAYS or last not in DAYS:
        return [first, last] if first != last else [first]
    start = DAYS.index(first)
    return [DAYS[(start + ahead) % 7] for ahead in range((DAYS.index(last) - start) % 7 + 1)]


def budget_cell(budget: Mapping[str, Any]) -> str:
    """Write the budget of a spec: ``100 per Month``."""
    return f"{budget['gpuHours']} per {budget['window']}"


def read_budget(cell: str) -> Any:
    """Read the budget of a spec; raises `FieldError`. Its values are checked with the spec."""
    if cell.strip().lower() == "unlimited":
        return "unlimited"
    match = _BUDGET.fullmatch(cell.strip())
    if match is None:
        raise strict.FieldError(f"'budget' must be such as 100 per Month, and not {_shown(cell)}.", "budget")
    return {"gpuHours": match["hours"], "window": match["window"].capitalize()}


def read_number(cell: str) -> Any:
    """Read a whole number; other text stays, and is refused with the spec."""
    return int(cell) if re.fullmatch(r"\d{1,9}", cell.strip(), re.ASCII) else cell


def read_yes(cell: str) -> Any:
    """Read ``true`` or ``false`` in any case, as spreadsheets write them; other text stays, and is refused."""
    return {"true": True, "false": False}.get(cell.strip().lower(), cell)


def yes_cell(value: bool) -> str:
    """Write ``true`` or ``false``."""
    return json.dumps(value)


def _parts(cell: str) -> list[str]:
    return [part for text in cell.split(";") if (part := text.strip())]


def _shown(text: str) -> str:
    return repr(strict.printable(text, 60))
