"""The difference that an import would make: a dry run, limit by limit and field by field."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from ...message import gettext
from ..conflicts import subject_name
from ..limit import HUB_PROPERTIES, Limit, Subject
from ..owner import object_name
from .row import ImportedRow


class LineOutcome(StrEnum):
    """The outcome of an import for one limit."""

    ADDED = "added"
    CHANGED = "changed"
    REMOVED = "removed"
    UNCHANGED = "unchanged"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field before and after, as in the spec; ``None``: inherited."""

    field: str
    before: Any
    after: Any


@dataclass(frozen=True, slots=True)
class DifferenceLine:
    """One limit in the outcome of an import."""

    outcome: LineOutcome
    subject: Subject | None
    line: int | None
    """Line of the import; ``None``: the limit is not in it."""
    changes: tuple[FieldChange, ...] = ()
    errors: tuple[str, ...] = ()
    """Sentences that say why the limit cannot be written."""
    before: Limit | None = None
    after: Limit | None = None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        body = {
            "outcome": self.outcome.value,
            "subject": self.subject.to_json() if self.subject else None,
            "line": self.line,
            "changes": [{"field": item.field, "from": item.before, "to": item.after} for item in self.changes],
            "errors": list(self.errors),
            "object": self.before.object_name or None if self.before else None,
        }
        return {key: value for key, value in body.items() if value not in (None, [])}


@dataclass(frozen=True, slots=True)
class Difference:
    """The outcome of an import, in its own order; the limits that it removes come last."""

    lines: tuple[DifferenceLine, ...]

    @property
    def refused(self) -> bool:
        """Whether any limit cannot be written; then none should be."""
        return any(line.outcome is LineOutcome.REFUSED for line in self.lines)

    def sentence(self) -> str:
        """Return ``2 added, 1 changed, 0 removed, 5 unchanged.``, and how many cannot be written."""
        counts = Counter(line.outcome for line in self.lines)
        values = [counts[item] for item in LineOutcome]
        if counts[LineOutcome.REFUSED]:
            return gettext("%1 added, %2 changed, %3 removed, %4 unchanged, %5 refused.", *values)
        return gettext("%1 added, %2 changed, %3 removed, %4 unchanged.", *values[:-1])

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {"sentence": self.sentence(), "refused": self.refused, "lines": [line.to_json() for line in self.lines]}

    def result(self, current: Sequence[Limit]) -> list[Limit]:
        """Return the limits as they would be after the import: for a preview of its effects."""
        gone = {id(line.before) for line in self.lines if line.outcome in (LineOutcome.CHANGED, LineOutcome.REMOVED)}
        new = [
            line.after for line in self.lines if line.outcome in (LineOutcome.ADDED, LineOutcome.CHANGED) and line.after
        ]
        return [*(limit for limit in current if id(limit) not in gone), *new]


def difference(current: Sequence[Limit], rows: Sequence[ImportedRow], *, replace: bool = False) -> Difference:
    """Return what writing ``rows`` does to the ``current`` limits.

    ``replace``: limits that are not in the import are removed, but for those that a tool keeps and those that are
    about no one. A limit that a tool keeps cannot be changed, only repeated, and neither can one of several objects
    about one subject.
    """
    known: dict[Subject, list[Limit]] = {}
    for limit in current:
        if limit.subject and limit.managed_by != HUB_PROPERTIES:
            known.setdefault(limit.subject, []).append(limit)
    lines = [_line(row, known.get(row.subject, []) if row.subject else []) for row in rows]
    if replace:
        named = {row.subject for row in rows}
        lines += [
            DifferenceLine(LineOutcome.REMOVED, subject, None, before=limit)
            for subject in sorted(known)
            for limit in sorted(known[subject], key=lambda limit: limit.object_name)
            if subject not in named and not limit.locked
        ]
    return Difference(tuple(lines))


def _line(row: ImportedRow, same: Sequence[Limit]) -> DifferenceLine:
    before = same[0] if same else None
    if row.limit is None:
        return DifferenceLine(LineOutcome.REFUSED, row.subject, row.line, errors=row.errors, before=before)
    if before is None:
        changes = _changes({}, _fields(row.limit))
        after = dataclasses.replace(row.limit, object_name=_name(row.limit))
        return DifferenceLine(LineOutcome.ADDED, row.subject, row.line, changes, after=after)
    changes = _changes(_fields(before), _fields(row.limit))
    if not changes and not before.problem and len(same) == 1:
        return DifferenceLine(LineOutcome.UNCHANGED, row.subject, row.line, before=before, after=row.limit)
    if error := _refusal(row, same):
        return DifferenceLine(LineOutcome.REFUSED, row.subject, row.line, changes, (error,), before)
    return DifferenceLine(
        LineOutcome.CHANGED, row.subject, row.line, changes, before=before, after=_merged(before, row.limit)
    )


def _refusal(row: ImportedRow, same: Sequence[Limit]) -> str:
    if len(same) > 1 and row.subject:
        names = ", ".join(sorted(limit.object_name for limit in same))
        values = len(same), subject_name(row.subject), names
        return gettext("%1 limits are about %2: %3. Remove all but one of them first.", *values)
    if not same[0].locked:
        return ""
    return gettext("%1 keeps this limit, and would undo the change; change it there.", same[0].managed_by)


def _name(limit: Limit) -> str:
    """Return the name of the object that writers make for a limit."""
    subject = limit.subject
    return object_name(subject.kind, subject.name, subject.hub) if subject else ""


def _merged(before: Limit, after: Limit) -> Limit:
    """Return the limit as it will be: the fields of the import, and what else the object has."""
    kept = {key: getattr(before, key) for key in ("members", "hub_members", "object_name", "extra")}
    return dataclasses.replace(after, **kept)


def _fields(limit: Limit) -> Mapping[str, Any]:
    return {key: value for key, value in limit.spec().items() if key in Limit.FIELDS}


def _changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> tuple[FieldChange, ...]:
    pairs = ((key, before.get(key), after.get(key)) for key in Limit.FIELDS)
    return tuple(FieldChange(key, was, now) for key, was, now in pairs if was != now)
