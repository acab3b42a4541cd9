"""Words of a terminal for limits: ``user:ann max=2 hours="Mon-Fri 08:00-18:00=1"``, and tables of them."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping, Sequence
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import InvalidRequest
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.times import HOUR
from jupyter_gpu.model.limits.transfer.cells import protect
from jupyter_gpu.model.limits.transfer.table import SUBJECT, read_table
from jupyter_gpu.model.limits.transfer.usage import Month, UsageRow

INHERIT = "inherit"
"""Word for a field that is to be inherited again."""
_KINDS = {kind.value.lower(): kind for kind in SubjectKind}
_COLUMNS = ("max", "guaranteed", "weight", "priority")


def subject(word: str, hub: str) -> Subject:
    """Read ``user:ann``, ``group:ml``, ``namespace:jobs``, ``default`` or ``cap``; raises `FieldError`.

    ``hub``: name of the hub of a user or group; empty: every hub.
    """
    kind, colon, name = word.partition(":")
    if kind.lower() not in _KINDS:
        kinds = ", ".join(_KINDS)
        raise strict.FieldError(f"{word!r} is no subject; write user:ann, or another of {kinds}.", "subject")
    body: dict[str, str] = {"kind": _KINDS[kind.lower()].value}
    if colon:
        body["name"] = name
    if hub and body["kind"] in ("User", "Group"):
        body["hub"] = hub
    return Subject.from_json(body)


def fields(of: Subject, words: Sequence[str]) -> dict[str, Any]:
    """Read ``max=2 weight=inherit``: values as in a table, ``None`` for what is inherited; raises `FieldError`."""
    given: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals or name not in Limit.FIELDS:
            known = ", ".join(Limit.FIELDS)
            raise strict.FieldError(f"{word!r} sets no field; write max=2, or another of {known}.", name)
        if name in given:
            raise strict.FieldError(f"{name} is there twice.", name)
        given[name] = value
    return {name: None if given[name] == INHERIT else value for name, value in _values(of, given).items()}


def wanted(word: str, hub: str, words: Sequence[str] | None) -> tuple[Subject, dict[str, Any] | None]:
    """Read a subject and the fields to set, ``None`` to remove the limit; raises `InvalidRequest`."""
    try:
        whose = subject(word, hub)
        return whose, None if words is None else fields(whose, words)
    except strict.FieldError as error:
        raise InvalidRequest(str(error), error.field) from None


def _values(of: Subject, given: Mapping[str, str]) -> dict[str, Any]:
    """Read the cells of one row of a table."""
    set_now = {name: value for name, value in given.items() if value != INHERIT}
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL)
    writer.writerow([*SUBJECT, *set_now])
    cells = [of.kind.value, of.name, of.hub, *set_now.values()]
    writer.writerow([protect(cell) for cell in cells])
    (row,) = read_table(text.getvalue())
    if row.limit is None:
        raise strict.FieldError(" ".join(row.errors), "")
    spec = row.limit.spec()
    empty = [name for name in set_now if name not in spec]
    if empty:
        raise strict.FieldError(f"{empty[0]} has no value; write {empty[0]}={INHERIT} for none.", empty[0])
    return {name: spec.get(name) for name in given}


def table(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return limits as lines of text; each row is ``{"subject", "fields", "managedBy", "changed", "problem"}``."""
    lines = [("SUBJECT", "HUB", *(name.upper() for name in _COLUMNS), "OTHERS", "LAST CHANGE")]
    for row in rows:
        whose, set_now = row["subject"] or {}, row["fields"]
        name = ":".join(filter(None, [str(whose.get("kind", "?")).lower(), whose.get("name", "")]))
        others = [key for key in set_now if key not in _COLUMNS]
        lines.append(
            (
                strict.printable(name, 48),
                strict.printable(whose.get("hub", "-"), 24),
                *(_cell(set_now.get(column)) for column in _COLUMNS),
                ",".join(others) or "-",
                _changed(row),
            )
        )
    return _aligned(lines)


def usage_table(rows: Sequence[UsageRow], month: Month) -> str:
    """Return the use of a month as lines of text, and what is to be known about it."""
    lines = [("OWNER", "HUB", "GPU-HOURS", "DAYS")]
    for row in rows:
        name = f"{row.kind.value.lower()}:{row.name}"
        hours = f"{row.amount / HOUR:.2f}{'' if row.complete else ' +'}"
        lines.append((strict.printable(name, 48), strict.printable(row.hub or "-", 24), hours, str(row.days)))
    notes = [] if rows else [f"No GPU was used in {month}."]
    if not all(row.complete for row in rows):
        notes.append("+ some days of the month are not kept any more, or can't be read.")
    return "\n".join([_aligned(lines), *notes])


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[i]) for line in lines) for i in range(len(lines[0]))]
    shown = ["  ".join(f"{cell:<{width}}" for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join(shown)


def _cell(value: Any) -> str:
    if isinstance(value, Mapping):  # a priority
        value = value.get("max")
    return "-" if value is None else str(value)


def _changed(row: Mapping[str, Any]) -> str:
    if row.get("problem"):
        return f"can't be read: {strict.printable(row['problem'], 80)}"
    changed = row.get("changed")
    if changed:
        return f"{strict.printable(changed['by'], 32)}, {changed['at']}"
    return f"kept by {row['managedBy']}" if row.get("managedBy") else "-"
