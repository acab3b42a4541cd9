"""Pure: one subject's limit with all its fields: the written ones, the values in force, the values without it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, dataclass
from typing import Any

from jupyter_gpu.model.limits.effective import EffectiveLimits, effective
from jupyter_gpu.model.limits.effective_json import effective_json
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import Owner, object_name

from .limit_rows import LimitRow


@dataclass(frozen=True, slots=True)
class SubjectDetails:
    """The limit of one subject, field by field."""

    subject: Subject
    own: LimitRow | None
    """The limit that an edit changes; ``None``: there is none."""
    effective: EffectiveLimits
    """The limits that hold for a user of this name, for a member of no other group, or for everyone."""
    inherited: EffectiveLimits
    """The same without the limit that people write for the subject."""
    notes: tuple[str, ...] = ()
    """Sentences for administrators: what cannot be read, two limits for one subject."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        own = self.own.to_json() if self.own else None
        return {
            "subject": self.subject.to_json(),
            "object": own["object"] if own else object_name(*astuple(self.subject)),
            "own": {key: own[key] for key in ("object", "version", "fields", "managedBy", "mirrored")} if own else None,
            "effective": effective_json(self.effective),
            "inherited": effective_json(self.inherited),
            "notes": list(self.notes),
            "changed": own["changed"] if own else None,
        }


def details(subject: Subject, rows: Iterable[LimitRow]) -> SubjectDetails:
    """Return the limit of a subject, of which there need be none; ``rows``: all limits."""
    known = [row for row in rows if row.known]
    mine = [row for row in known if row.subject == subject]
    written = sorted((row for row in mine if row.known and not row.known.mirrored), key=_edited_first)
    limits = [row.known.limit for row in known if row.known]
    others = [limit for limit in limits if limit.subject != subject or limit.managed_by == HUB_PROPERTIES]
    notes = [row.problem for row in mine if row.problem]
    notes += [condition.message for row in mine for condition in row.conditions]
    return SubjectDetails(
        subject=subject,
        own=written[0] if written else None,
        effective=_effective(subject, limits),
        inherited=_effective(subject, others),
        notes=tuple(dict.fromkeys(notes)),
    )


def _edited_first(row: LimitRow) -> tuple[bool, str]:
    """Order limits about one subject as `known.find` does."""
    assert row.known
    return row.known.limit.locked, row.known.name


def _effective(subject: Subject, limits: Iterable[Limit]) -> EffectiveLimits:
    """Return what holds for somebody about whom only limits of this subject and of everyone speak."""
    match subject.kind:
        case SubjectKind.CAP:
            return effective(Owner("User", ""), [limit for limit in limits if limit.subject == subject])
        case SubjectKind.DEFAULT:
            return effective(Owner("User", ""), limits, groups=())
        case SubjectKind.GROUP:
            return effective(Owner("User", "", subject.hub), limits, groups=(subject.name,))
        case SubjectKind.NAMESPACE:
            return effective(Owner("Namespace", subject.name), limits)
    return effective(Owner("User", subject.name, subject.hub), limits)
