"""One limit of an import, with the line where it stands."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from ..conflicts import subject_name
from ..limit import Limit, Subject
from ..read_limit import read_limit

MAX_ROWS = 10_000
MAX_BYTES = 8 * 1024 * 1024
"""Most bytes of an import."""


@dataclass(frozen=True, slots=True)
class ImportedRow:
    """A limit that is to be written, or the sentences that say why it can't be."""

    line: int
    """Line of the text on which it begins, from 1 on."""
    limit: Limit | None
    """``None``: there are ``errors``."""
    errors: tuple[str, ...] = ()
    subject: Subject | None = None
    """As far as it can be read, for messages."""


def row_of(line: int, spec: Mapping[str, Any], errors: Iterable[str] = ()) -> ImportedRow:
    """Return the row of a spec; unlike what is stored, a value that can't be read is refused."""
    limit = read_limit({"spec": spec})
    found = tuple(filter(None, (*errors, limit.problem)))
    return ImportedRow(line, None if found else limit, found, limit.subject)


def distinct(rows: Iterable[ImportedRow]) -> tuple[ImportedRow, ...]:
    """Return the rows; one about a subject that an earlier row is about gets an error."""
    first: dict[Subject, int] = {}
    found = []
    for row in rows:
        line = first.setdefault(row.subject, row.line) if row.subject else row.line
        if row.subject and line != row.line:
            again = f"Line {line} is about {subject_name(row.subject)} too; keep one of them."
            found.append(replace(row, limit=None, errors=(*row.errors, again)))
        else:
            found.append(row)
    return tuple(found)
