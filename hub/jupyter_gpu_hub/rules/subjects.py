"""Pure: the rows of the page's table: default, cap, groups, namespaces and users, each with its limit and its use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.model.limits.amount import Amount, amount_key
from jupyter_gpu.model.limits.changes import LimitChange, format_time
from jupyter_gpu.model.limits.limit import Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.source import Sourced

from .groups import Group
from .limit_rows import LimitRow
from .people import UserRow, account_json, sourced_json

KINDS = {
    SubjectKind.DEFAULT: 0,
    SubjectKind.CAP: 1,
    SubjectKind.GROUP: 2,
    SubjectKind.NAMESPACE: 3,
    SubjectKind.USER: 4,
}
"""Order of the kinds in the table."""
_EVERYONE = (Subject(SubjectKind.DEFAULT), Subject(SubjectKind.CAP))


@dataclass(frozen=True, slots=True)
class SubjectRow:
    """One subject; amounts in milli."""

    subject: Subject
    limit: Sourced[Amount] | None
    """The effective maximum of a user; for others the one that is written; ``None``: none is."""
    guaranteed: Sourced[int] | None
    own: tuple[LimitRow, ...] = ()
    """The limits about this subject; the first is the one that an edit changes."""
    used: int | None = None
    """Held by the user, or by all members of the group; ``None``: it is not counted for this kind."""
    waiting: int | None = None
    idle: int | None = None
    members: int | None = None
    """Members of a group."""
    known: bool = True
    """Whether the hub knows the user or group."""
    user: UserRow | None = None

    @property
    def name(self) -> str:
        """Text that is searched: the name, else the kind."""
        return self.subject.name or self.subject.kind.value

    @property
    def changed(self) -> LimitChange | None:
        """The newest change of a limit that counts for the subject."""
        if self.user:
            return self.user.changed
        changes = [item.known.limit.changed for item in self.own if item.known and item.known.limit.changed]
        return max(changes, key=lambda change: change.at, default=None)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        first = self.own[0].to_json() if self.own else None
        changed = self.changed
        notes = [item.problem for item in self.own if item.problem]
        notes += [condition.message for item in self.own for condition in item.conditions]
        return {
            "subject": self.subject.to_json(),
            "known": self.known,
            "limit": sourced_json(self.limit) if self.limit else None,
            "guaranteed": sourced_json(self.guaranteed) if self.guaranteed else None,
            "used": self.used,
            "waiting": self.waiting,
            "idle": self.idle,
            "members": self.members,
            "own": {key: first[key] for key in ("object", "version", "fields", "managedBy", "mirrored")}
            if first
            else None,
            "notes": list(dict.fromkeys(notes)),
            **account_json(self.user.account if self.user else None),
            "changed": {"by": changed.by, "at": format_time(changed.at)} if changed else None,
        }


def _amount(value: Sourced[Amount] | None) -> Any:
    return (0, 0) if value is None else (1, amount_key(value.value))


SORTS: Mapping[str, Callable[[SubjectRow], Any]] = {
    "kind": lambda row: KINDS[row.subject.kind],
    "name": lambda row: row.name,
    "limit": lambda row: _amount(row.limit),
    "guaranteed": lambda row: row.guaranteed.value if row.guaranteed else -1,
    "used": lambda row: -1 if row.used is None else row.used,
    "waiting": lambda row: -1 if row.waiting is None else row.waiting,
    "idle": lambda row: -1 if row.idle is None else row.idle,
    "changed": lambda row: row.changed.at if row.changed else 0,
}
"""The columns of the table by which it can be sorted."""


def rows(
    limits: Iterable[LimitRow], groups: Mapping[str, Group], hub: str, active: Sequence[UserRow]
) -> list[SubjectRow]:
    """Return a row for the default, the cap, each group of the hub, and others that have a limit, but users of the hub.

    ``active``: the users who have GPUs or wait for some.
    """
    of: dict[Subject, list[LimitRow]] = {}
    for item in limits:
        if item.subject and not is_user(item.subject, hub):
            of.setdefault(item.subject, []).append(item)
    for items in of.values():
        items.sort(key=_edited_first)
    named = dict.fromkeys([*_EVERYONE, *(Subject(SubjectKind.GROUP, name, hub) for name in sorted(groups))])
    others = [subject for subject in sorted(of) if subject not in named]
    return [_written(subject, of.get(subject, ()), groups, hub, active) for subject in (*named, *others)]


def is_user(subject: Subject, hub: str) -> bool:
    """Tell whether a subject is a user of this hub."""
    return subject.kind is SubjectKind.USER and subject.hub == hub


def user_row(row: UserRow, hub: str, own: Iterable[LimitRow]) -> SubjectRow:
    """Return the row of a user; ``own``: limits, of which those about the user count."""
    subject = Subject(SubjectKind.USER, row.name, hub)
    mine = sorted((item for item in own if item.subject == subject), key=_edited_first)
    return SubjectRow(
        subject, row.limit, row.guaranteed, tuple(mine), row.used, row.waiting, row.idle, known=row.known, user=row
    )


def _edited_first(item: LimitRow) -> tuple[bool, bool, bool, str]:
    """Order limits about one subject: first the one that an edit changes, as `known.find` does."""
    known = item.known
    return (False, known.mirrored, known.limit.locked, known.name) if known else (True, False, False, "")


def _written(
    subject: Subject, own: Sequence[LimitRow], groups: Mapping[str, Group], hub: str, active: Iterable[UserRow]
) -> SubjectRow:
    most, guaranteed = _first(own, "max"), _first(own, "guaranteed")
    if subject.kind is not SubjectKind.GROUP:
        return SubjectRow(subject, most, guaranteed, tuple(own))
    group = groups.get(subject.name) if subject.hub in ("", hub) else None
    members = group.members if group else _members(own)
    mine = [row for row in active if row.name in members] if subject.hub in ("", hub) else []
    return SubjectRow(
        subject,
        most,
        guaranteed,
        tuple(own),
        used=sum(row.used for row in mine),
        waiting=sum(row.waiting for row in mine),
        idle=sum(row.idle for row in mine),
        members=len(members),
        known=group is not None,
    )


def _members(own: Iterable[LimitRow]) -> Collection[str]:
    return frozenset(name for item in own if item.known for name in item.known.limit.members)


def _first(own: Iterable[LimitRow], field: str) -> Sourced[Any] | None:
    """Return the value of the first limit that sets the field, as a written one counts before mirrored properties."""
    limits: list[Limit] = [item.known.limit for item in own if item.known]
    found = (Sourced(getattr(limit, field), limit.source) for limit in limits)
    return next((item for item in found if item.value is not None), None)
