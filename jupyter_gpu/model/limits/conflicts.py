"""Conditions of limits: which of them share a subject, and what of them cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import strict
from .limit import HUB_PROPERTIES, Limit, Subject, SubjectKind

CONFLICTING = "Conflicting"
UNREADABLE = "Unreadable"
OVERRIDDEN = "Overridden"

_NAMED = 3
"""Most objects that a message names."""


@dataclass(frozen=True, slots=True)
class LimitCondition:
    """A condition in the status of a ``GpuLimit``, without its time: the writer knows when it changed.

    https://github.com/kubernetes/community/blob/master/contributors/devel/sig-architecture/api-conventions.md
    """

    type: str
    reason: str
    """One word for programs."""
    message: str
    """A sentence for administrators."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        message = strict.printable(self.message, 1024)
        return {"type": self.type, "status": "True", "reason": self.reason, "message": message}


def conflicts(limits: Iterable[Limit]) -> dict[Subject, tuple[Limit, ...]]:
    """Return the limits that share a subject, by subject, sorted by the names of the objects.

    The mirrored properties of a hub's group share no subject with a written limit: that one wins.
    """
    found: dict[tuple[Subject, bool], list[Limit]] = {}
    for limit in limits:
        if limit.subject:
            found.setdefault((limit.subject, limit.managed_by == HUB_PROPERTIES), []).append(limit)
    return {
        subject: tuple(sorted(same, key=lambda limit: limit.object_name))
        for (subject, _), same in found.items()
        if len(same) > 1
    }


def conditions(limits: Sequence[Limit]) -> Mapping[str, tuple[LimitCondition, ...]]:
    """Return the conditions of each limit that has any, by the name of its object."""
    found: dict[str, list[LimitCondition]] = {}
    for limit in limits:
        if limit.problem:
            where = "What cannot be read counts as the least that it could mean" if limit.unread else "Correct it"
            condition = LimitCondition(UNREADABLE, "InvalidField", f"{limit.problem} {where}.")
            found.setdefault(limit.object_name, []).append(condition)
    for subject, same in conflicts(limits).items():
        for limit in same:
            others = _listed([other.object_name for other in same if other is not limit])
            about = f"{len(same)} limits are about {subject_name(subject)}: this one and {others}."
            message = f"{about} Of each field the smaller value holds. Keep one of them."
            found.setdefault(limit.object_name, []).append(LimitCondition(CONFLICTING, "SameSubject", message))
    written = {limit.subject for limit in limits if limit.managed_by != HUB_PROPERTIES}
    for limit in limits:
        if limit.subject and limit.managed_by == HUB_PROPERTIES and limit.subject in written:
            message = (
                f"A limit is written for {subject_name(limit.subject)}: its fields hold, not the group's properties."
            )
            found.setdefault(limit.object_name, []).append(LimitCondition(OVERRIDDEN, "WrittenLimit", message))
    return {name: tuple(items) for name, items in found.items()}


def subject_name(subject: Subject) -> str:
    """Return the subject in words: ``user ann of hub jhub``, ``the default``."""
    if subject.kind in (SubjectKind.DEFAULT, SubjectKind.CAP):
        return f"the {subject.kind.value.lower()}"
    hub = f" of hub {strict.printable(subject.hub, 64)}" if subject.hub else ""
    return f"{subject.kind.value.lower()} {strict.printable(subject.name, 64)}{hub}"


def _listed(names: Sequence[str]) -> str:
    shown = [*names[:_NAMED], f"{len(names) - _NAMED} more"] if len(names) > _NAMED else list(names)
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}"
