"""Pure: one row for each limit, from which `subjects` makes the page's table."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.model.limits.amount import amount_key
from jupyter_gpu.model.limits.changes import format_time
from jupyter_gpu.model.limits.conflicts import LimitCondition, conditions
from jupyter_gpu.model.limits.limit import Subject, SubjectKind

from .groups import Group, limit_of
from .known import KnownLimit

_ORDER = {kind: number for number, kind in enumerate(SubjectKind)}


@dataclass(frozen=True, slots=True)
class LimitRow:
    """One limit, or properties of a group that no limit could be made of."""

    subject: Subject | None
    known: KnownLimit | None
    problem: str = ""
    """A sentence about what cannot be read; empty: all can be."""
    conditions: tuple[LimitCondition, ...] = ()
    """Notes for administrators: two limits for one subject, a value that cannot be read."""

    @property
    def name(self) -> str:
        """Text that is searched, and by which rows are sorted."""
        return self.subject.name if self.subject and self.subject.name else self._kind.value if self._kind else ""

    @property
    def _kind(self) -> SubjectKind | None:
        return self.subject.kind if self.subject else None

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        limit = self.known.limit if self.known else None
        changed = limit.changed if limit else None
        return {
            "object": self.known.name if self.known else None,
            "version": self.known.version if self.known else None,
            "subject": self.subject.to_json() if self.subject else None,
            "fields": self.known.fields if self.known else {},
            "members": len(limit.members) if limit and self._kind is SubjectKind.GROUP else None,
            "managedBy": (limit.managed_by if limit else "") or None,
            "mirrored": self.known.mirrored if self.known else True,
            "problem": self.problem or None,
            "conditions": [condition.to_json() for condition in self.conditions],
            "changed": {"by": changed.by, "at": format_time(changed.at)} if changed else None,
        }


def _max(row: LimitRow) -> tuple[int, Any]:
    most = row.known.limit.max if row.known else None
    return (0, 0) if most is None else (1, amount_key(most))


def _guaranteed(row: LimitRow) -> int:
    return (row.known.limit.guaranteed if row.known else None) or 0


def _changed(row: LimitRow) -> int:
    changed = row.known.limit.changed if row.known else None
    return changed.at if changed else 0


SORTS: Mapping[str, Callable[[LimitRow], Any]] = {
    "name": lambda row: row.name,
    "kind": lambda row: _ORDER[row.subject.kind] if row.subject else len(_ORDER),
    "max": _max,
    "guaranteed": _guaranteed,
    "changed": _changed,
}
"""The columns of the table by which it can be sorted."""


def rows(limits: Iterable[KnownLimit], groups: Iterable[Group], hub: str) -> list[LimitRow]:
    """Return a row for each limit, and one for each group whose properties say something that is no limit."""
    known = list(limits)
    problems = {group.name: said.problem for group in groups if (said := limit_of(group)).problem}
    told = conditions([item.limit for item in known])
    found = []
    for item in sorted(known, key=lambda item: item.name):
        subject, problem = item.limit.subject, item.limit.problem
        if item.mirrored and subject and subject.hub == hub:
            problem = " ".join(filter(None, [problem, problems.pop(subject.name, "")]))
        found.append(LimitRow(subject, item, problem, told.get(item.name, ())))
    lost = [
        LimitRow(Subject(SubjectKind.GROUP, name, hub), None, problem) for name, problem in sorted(problems.items())
    ]
    return [*found, *lost]
