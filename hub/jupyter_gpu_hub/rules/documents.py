"""Imports of limits: the edits of a request, those of a document or a table, and the limits that would follow. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.conflicts import subject_name
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.machine_file import unsuitable
from jupyter_gpu.model.limits.transfer.difference import Difference, DifferenceLine, LineOutcome, difference
from jupyter_gpu.model.limits.transfer.document import read_document
from jupyter_gpu.model.limits.transfer.row import MAX_ROWS, ImportedRow, distinct
from jupyter_gpu.model.limits.transfer.table import read_table
from jupyter_gpu.model.message import gettext

from .edits import Edit, Prepared
from .machine.limit_document import at_home, in_file
from .place import CLUSTER, Place

_WRITTEN = (LineOutcome.ADDED, LineOutcome.CHANGED, LineOutcome.REMOVED)


@dataclass(frozen=True, slots=True)
class Import:
    """The body of an import: ``{"format": "csv", "text": "kind,name,max…", "replace": false, "dryRun": true}``."""

    text: str
    table: bool
    """Whether it is a table (CSV); otherwise it is a document (JSON)."""
    replace: bool = False
    """Whether limits that are not in it are removed."""
    dry_run: bool = False

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Import:
        """Checked; raises `FieldError`."""
        strict.no_unknown(body, ("format", "text", "replace", "dryRun"))
        return cls(
            text=strict.required(body, "text", _text),
            table=strict.required(body, "format", strict.one_of("csv", "json")) == "csv",
            replace=strict.optional(body, "replace", strict.boolean) or False,
            dry_run=strict.optional(body, "dryRun", strict.boolean) or False,
        )

    def difference(self, current: Sequence[Limit], place: Place = CLUSTER, hub: str = "") -> Difference:
        """Return what it does to the limits; the cap is left to administrators of the place.

        ``hub``: name of the only hub of a machine, whose users and groups all are its own.
        """
        rows = read_table(self.text) if self.table else read_document(self.text)
        if place.is_machine:
            rows = distinct(_at_home(row, hub) for row in rows)
        found = difference(current, rows, replace=self.replace)
        return Difference(tuple(line for item in found.lines if (line := _without_cap(item, place.cap))))


def edits_of(found: Difference) -> list[Edit]:
    """Return the edits of an import, each of which sets or inherits every field."""
    return [_edit(line, line.subject) for line in found.lines if line.outcome in _WRITTEN and line.subject]


def read_edits(value: Any, key: str = "edits") -> list[Edit]:
    """Read a list of edits about different subjects; raises `FieldError`."""
    edits = strict.list_of(Edit.from_json, MAX_ROWS)(value, key)
    seen: set[Subject] = set()
    for edit in edits:
        if edit.subject in seen:
            raise strict.FieldError(gettext("There are two edits of %1.", subject_name(edit.subject)), "subject")
        seen.add(edit.subject)
    return list(edits)


def limits_after(limits: Iterable[Limit], prepared: Iterable[Prepared]) -> list[Limit]:
    """Return the limits as they would be after some writes: for a preview of their effects."""
    done = list(prepared)
    written = {item.object_name for item in done}
    kept = [limit for limit in limits if limit.object_name not in written]
    return [*kept, *(item.limit for item in done if item.limit)]


def _at_home(row: ImportedRow, hub: str) -> ImportedRow:
    """Return a row as it counts on a machine; a limit that has no meaning there is refused."""
    if row.limit is None or row.limit.subject is None:
        return row
    if why := unsuitable(replace(row.limit, subject=in_file(row.limit.subject, hub))):
        return ImportedRow(row.line, None, (*row.errors, why))
    subject = at_home(row.limit.subject, hub)
    return replace(row, limit=replace(row.limit, subject=subject), subject=subject)


def _without_cap(line: DifferenceLine, cap: str) -> DifferenceLine | None:
    if line.subject is None or line.subject.kind is not SubjectKind.CAP or line.outcome not in _WRITTEN:
        return line
    if line.outcome is LineOutcome.REMOVED:  # as little as those that a tool keeps
        return None
    return replace(line, outcome=LineOutcome.REFUSED, errors=(cap,))


def _edit(line: DifferenceLine, subject: Subject) -> Edit:
    if line.after is None:
        return Edit(subject, None)
    spec = line.after.spec()
    return Edit(subject, {key: spec.get(key) for key in Limit.FIELDS})


def _text(value: Any, key: str) -> str:
    if not isinstance(value, str):
        raise strict.FieldError(gettext("%1 must be text.", repr(key)), key)
    return value
