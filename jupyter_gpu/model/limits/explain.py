"""The answer to "why 2?": every limit that could set a field for an owner, and why it does or does not."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Any

from ..message import Message, gettext
from .conflicts import subject_name
from .effective import applies, effective
from .effective_json import SIMPLE
from .limit import Limit, Subject, SubjectKind
from .owner import Owner
from .source import Source, Sourced, SourceKind

_ORDER = {
    SubjectKind.USER: 0,
    SubjectKind.NAMESPACE: 0,
    SubjectKind.GROUP: 1,
    SubjectKind.DEFAULT: 2,
    SubjectKind.CAP: 3,
}
"""The levels, in the order in which the first that sets a field counts; the cap counts besides."""
_UNSET = SourceKind.UNSET
ATTRIBUTES = {key: (attribute, write) for key, attribute, write, _ in SIMPLE}
"""The fields that can be explained, by their name in the spec."""


@dataclass(frozen=True, slots=True)
class ExplainedLimit:
    """One limit, and its part in the value of a field."""

    limit: Limit
    value: Any
    """As in the spec; ``None``: the limit does not set the field."""
    holds: bool
    """Whether the owner's value is this one."""
    reason: str
    """A sentence that says why it holds or does not."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        subject = self.limit.subject.to_json() if self.limit.subject else None
        return {
            "object": self.limit.object_name,
            "subject": subject,
            "value": self.value,
            "holds": self.holds,
            "reason": self.reason,
        }


def explain(
    owner: Owner, limits: Iterable[Limit], field: str = "max", *, groups: Collection[str] | None = None
) -> tuple[ExplainedLimit, ...]:
    """Return the limits that apply to ``owner``, those that count first first, with their part in ``field``.

    ``field`` is one of `ATTRIBUTES`; ``groups`` is as in `effective`.
    """
    attribute, write = ATTRIBUTES[field]
    mine = [limit for limit in limits if limit.subject and applies(limit, owner, groups)]
    # A guarantee is cut to the maximum at the end: that has its own sentence.
    alone = [replace(limit, max=None) for limit in mine] if field == "guaranteed" else mine
    uncapped = [limit for limit in alone if limit.subject and limit.subject.kind is not SubjectKind.CAP]
    found = getattr(effective(owner, alone, groups=groups), attribute)
    chosen = getattr(effective(owner, uncapped, groups=groups), attribute)
    cut = getattr(effective(owner, mine, groups=groups), attribute)
    steps = []
    for limit in sorted(mine, key=_place):
        value = getattr(limit, attribute)
        holds = value is not None and found.source.object == limit.object_name and found.source.kind is not _UNSET
        reason = gettext("It does not set this.") if value is None else _reason(limit, found, chosen, holds=holds)
        if holds and cut.value != found.value:
            reason = gettext("This holds, cut to the maximum of %1: %2.", _of(cut.source), write(cut.value))
        steps.append(ExplainedLimit(limit, None if value is None else write(value), holds, reason))
    return tuple(steps)


def _place(limit: Limit) -> tuple[int, str, str]:
    assert limit.subject
    return (_ORDER[limit.subject.kind], limit.subject.name, limit.object_name)


def _reason(limit: Limit, found: Sourced[Any], chosen: Sourced[Any], *, holds: bool) -> Message:
    """Return why a value holds or not; ``chosen`` is what would hold without a cap."""
    subject = limit.subject
    assert subject
    if holds:
        return (
            gettext("This holds. It cannot be read: it is the least that was meant.")
            if found.source.unreadable
            else gettext("This holds.")
        )
    if subject.kind is SubjectKind.CAP:
        return gettext("It allows as much as %1, or more.", _of(found.source))
    if limit.object_name == chosen.source.object:
        return gettext("It is more than %1 allows.", _of(found.source))
    if SourceKind(subject.kind.value) is not chosen.source.kind:
        return gettext("It counts only where nothing is set for %1.", _of(chosen.source))
    if subject.name != chosen.source.name:
        return gettext("It allows as much as %1, or less, and the largest of the groups counts.", _of(chosen.source))
    return gettext("Another limit for %1 counts in its place: %2.", _of(chosen.source), chosen.source.object)


def _of(source: Source) -> Message:
    """Return the subject of a source in words."""
    if source.kind is _UNSET:
        return gettext("what holds where no limit is set")
    return subject_name(Subject(SubjectKind(source.kind.value), source.name))
