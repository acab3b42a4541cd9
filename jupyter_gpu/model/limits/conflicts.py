"""Conditions of limits: which of them share a subject, and what of them cannot be read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from .. import strict
from ..message import Message, gettext, sentences
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
        shown = strict.printable(self.message, 1024)
        message = self.message if shown == self.message else shown  # which may be one that is translated
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
            advice = (
                gettext("What cannot be read counts as the least that it could mean.")
                if limit.unread
                else gettext("Correct it.")
            )
            condition = LimitCondition(UNREADABLE, "InvalidField", sentences(limit.problem, advice))
            found.setdefault(limit.object_name, []).append(condition)
    for subject, same in conflicts(limits).items():
        for limit in same:
            others = _listed([other.object_name for other in same if other is not limit])
            message = gettext(
                "%1 limits are about %2: this one and %3. Of each field the smaller value holds. Keep one of them.",
                len(same),
                subject_name(subject),
                others,
            )
            found.setdefault(limit.object_name, []).append(LimitCondition(CONFLICTING, "SameSubject", message))
    written = {limit.subject for limit in limits if limit.managed_by != HUB_PROPERTIES}
    for limit in limits:
        if limit.subject and limit.managed_by == HUB_PROPERTIES and limit.subject in written:
            message = gettext(
                "A limit is written for %1: its fields hold, not the group's properties.", subject_name(limit.subject)
            )
            found.setdefault(limit.object_name, []).append(LimitCondition(OVERRIDDEN, "WrittenLimit", message))
    return {name: tuple(items) for name, items in found.items()}


def subject_name(subject: Subject) -> Message:
    """Return the subject in words: ``user ann of hub jhub``, ``the default``."""
    name = strict.printable(subject.name, 64)
    match subject.kind:
        case SubjectKind.DEFAULT:
            return gettext("the default")
        case SubjectKind.CAP:
            return gettext("the cap")
        case SubjectKind.USER:
            text = gettext("user %1", name)
        case SubjectKind.GROUP:
            text = gettext("group %1", name)
        case _:  # SubjectKind.NAMESPACE, the only one left
            text = gettext("namespace %1", name)
    return gettext("%1 of hub %2", text, strict.printable(subject.hub, 64)) if subject.hub else text


def _listed(names: Sequence[str]) -> str:
    more = len(names) - _NAMED
    shown = [*names[:_NAMED], gettext("%1 more", more)] if more > 0 else list(names)
    return shown[0] if len(shown) == 1 else gettext("%1 and %2", ", ".join(shown[:-1]), shown[-1])
