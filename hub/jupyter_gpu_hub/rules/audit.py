"""The list of changes of all limits, from what is recorded with each. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.model.limits.changes import LimitChange
from jupyter_gpu.model.limits.limit import Subject

from .known import KnownLimit


@dataclass(frozen=True, slots=True)
class AuditRow:
    """One change of one limit."""

    subject: Subject | None
    object_name: str
    change: LimitChange

    @property
    def text(self) -> str:
        """Text that is searched: the subject and the person."""
        return f"{self.subject.name if self.subject else ''} {self.object_name} {self.change.by}"

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        subject = self.subject.to_json() if self.subject else None
        return {"object": self.object_name, "subject": subject, **self.change.to_json()}


SORTS: Mapping[str, Callable[[AuditRow], Any]] = {
    "name": lambda row: row.text,
    "at": lambda row: row.change.at,
    "by": lambda row: row.change.by,
}
"""The columns of the list by which it can be sorted."""


def rows(limits: Iterable[KnownLimit]) -> list[AuditRow]:
    """Return all recorded changes. Those of a limit that was removed are in the log only."""
    return [AuditRow(item.limit.subject, item.name, change) for item in limits for change in item.changes]
