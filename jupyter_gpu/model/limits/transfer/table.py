"""Limits as a table (CSV, RFC 4180): one row for each, an empty cell where a field is inherited.

Every cell is in quotation marks, so that a name with the separator of another country stays one cell, and a cell that
a spreadsheet would take for a formula begins with an apostrophe (`cells.protect`).
"""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ... import strict
from ..limit import HUB_PROPERTIES, Limit
from . import cells
from .row import MAX_BYTES, MAX_ROWS, ImportedRow, distinct, row_of

BOM = "\ufeff"
"""First letter of a file by which Excel knows UTF-8."""
SUBJECT = ("kind", "name", "hub")
COLUMNS = (*SUBJECT, *Limit.FIELDS)


class _Form(NamedTuple):
    write: Callable[[Any], str]
    read: Callable[[str], Any]


_TEXT = _Form(str, str.strip)
_FORMS: Mapping[str, _Form] = {
    "weight": _Form(str, cells.read_number),
    "priority": _Form(lambda priority: str(priority["max"]), lambda cell: {"max": cells.read_number(cell)}),
    "models": _Form(cells.models_cell, cells.read_models),
    "budget": _Form(cells.budget_cell, cells.read_budget),
    "hours": _Form(cells.hours_cell, cells.read_hours),
    "remote": _Form(cells.yes_cell, cells.read_yes),
    "lendable": _Form(cells.yes_cell, cells.read_yes),
}
"""Forms of the fields that are no plain text."""


def write_table(limits: Iterable[Limit], *, bom: bool = False) -> str:
    """Return limits as CSV; `read_table` reads it. ``bom``: begin with `BOM`, for a file that Excel opens.

    Left out are limits that are about no one, mirrored properties of groups, and fields of a newer version.
    """
    text = io.StringIO()
    writer = csv.writer(text, quoting=csv.QUOTE_ALL, lineterminator="\r\n")
    writer.writerow(COLUMNS)
    for limit in exported(limits):
        spec = limit.spec()
        fields = {key: _FORMS.get(key, _TEXT).write(spec[key]) for key in Limit.FIELDS if key in spec}
        row = {**spec["subject"], **fields}
        writer.writerow([cells.protect(row.get(column, "")) for column in COLUMNS])
    return (BOM if bom else "") + text.getvalue()


def read_table(text: str) -> tuple[ImportedRow, ...]:
    """Read limits from CSV with commas, semicolons or tabs, its columns in any order; never raises.

    Errors of a row are in the row; an error of the whole text is one row without a limit.
    """
    try:
        if len(text.encode(errors="surrogatepass")) > MAX_BYTES:
            raise strict.OversizeError(f"The table has more than {MAX_BYTES:,} bytes.")
        return distinct(_rows(text.removeprefix(BOM)))
    except strict.FieldError as error:
        return (ImportedRow(1, None, (str(error),)),)


def exported(limits: Iterable[Limit]) -> list[Limit]:
    """Return the limits that people write, sorted by subject."""
    found = [limit for limit in limits if limit.subject and limit.managed_by != HUB_PROPERTIES]
    return sorted(found, key=lambda limit: (limit.subject, limit.object_name))


def _rows(text: str) -> list[ImportedRow]:
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=_separator(text), strict=True)
    found: list[ImportedRow] = []
    columns, line = None, 1
    try:
        for row in reader:
            if columns is None:
                columns = _columns(row)
            elif any(cell.strip() for cell in row):
                if len(found) == MAX_ROWS:
                    raise strict.FieldError(f"The table has more than {MAX_ROWS:,} limits; import it in parts.")
                found.append(_row(line, columns, row))
            line = reader.line_num + 1
    except csv.Error as error:  # where the next row begins is not known
        wrong = f"The table cannot be read from here on: {strict.printable(str(error), 200)}."
        return [*found, ImportedRow(line, None, (wrong,))]
    return found if columns else [ImportedRow(1, None, ("The table is empty; its first line must name the columns.",))]


def _separator(text: str) -> str:
    header = text.partition("\n")[0]
    return max(",;\t", key=header.count)  # names of columns have none of these


def _columns(header: list[str]) -> list[str]:
    columns = [cells.expose(cell).strip() for cell in header]
    for column in columns:
        if column not in COLUMNS:
            shown = strict.printable(column, 60) if column else ""
            raise strict.FieldError(f"The column {shown!r} is unknown; known are {', '.join(COLUMNS)}.", "header")
    if len(set(columns)) < len(columns):
        raise strict.FieldError("A column is there twice.", "header")
    if "kind" not in columns:
        raise strict.FieldError("The first line must name the columns, and 'kind' is missing among them.", "header")
    return columns


def _row(line: int, columns: list[str], row: list[str]) -> ImportedRow:
    if len(row) > len(columns):
        return ImportedRow(
            line, None, (f"This row has {len(row)} cells, and the first line names {len(columns)} columns.",)
        )
    values = {column: exposed for column, cell in zip(columns, row, strict=False) if (exposed := cells.expose(cell))}
    subject = {key: values[key] for key in SUBJECT if key in values}
    spec: dict[str, Any] = {"subject": {**subject, **({"kind": subject["kind"].strip()} if "kind" in subject else {})}}
    errors = []
    for key in Limit.FIELDS:
        if values.get(key, "").strip():
            try:
                spec[key] = _FORMS.get(key, _TEXT).read(values[key])
            except strict.FieldError as error:
                errors.append(str(error))
    return row_of(line, spec, errors)
