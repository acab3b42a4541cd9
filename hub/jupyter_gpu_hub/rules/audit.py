"""The list of changes of all limits, from what is recorded with each. Pure."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from .known import KnownLimit


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change of one limit, without the values: those are read when the row is shown, as rows may be thousands."""

    known: KnownLimit
    number: int
    """Its place among the changes of the limit, from 0."""
    by: str
    at: int

    @property
    def text(self) -> str:
        """Text that is searched: the subject and the person."""
        subject = self.known.limit.subject
        return f"{subject.name if subject else ''} {self.known.name} {self.by}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        subject = self.known.limit.subject
        change = self.known.changes[self.number]
        return {"object": self.known.name, "subject": subject.to_json() if subject else None, **change.to_json()}


SORTS: Mapping[str, Callable[[AuditRow], Any]] = {
    "name": lambda row: row.text,
    "at": lambda row: row.at,
    "by": lambda row: row.by,
}
"""The columns of the list by which it can be sorted."""


def rows(limits: Iterable[KnownLimit]) -> list[AuditRow]:
    """Return all recorded changes."""
    return [
        AuditRow(item, number, sys.intern(change.by), change.at)
        for item in limits
        for number, change in enumerate(item.changes)
    ]
