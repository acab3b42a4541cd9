"""Limits as documents: JSON for export and import, and the edits that an import makes. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.limit import Limit, Subject

from .edits import Edit
from .known import KnownLimit

MOST = 10_000
"""Limits of one import, or edits of one request."""


def export(limits: Iterable[KnownLimit]) -> dict[str, Any]:
    """Return all limits that people write, as the body of an import. Copies of groups' properties are left out."""
    known = [item for item in limits if item.limit.subject and not item.mirrored]
    return {"limits": [item.limit.spec() for item in sorted(known, key=lambda item: (item.limit.subject, item.name))]}


def read_limits(value: Any, key: str = "limits") -> list[Edit]:
    """Read a list of specs, each with its subject; fields that are not there are inherited. Raises `FieldError`."""
    return distinct(strict.list_of(_read_spec, MOST)(value, key))


def read_edits(value: Any, key: str = "edits") -> list[Edit]:
    """Read a list of edits; raises `FieldError`."""
    return distinct(strict.list_of(Edit.from_json, MOST)(value, key))


def distinct(edits: Sequence[Edit]) -> list[Edit]:
    """Return the edits; raises `FieldError` if two are about the same subject."""
    seen: set[Subject] = set()
    for edit in edits:
        if edit.subject in seen:
            raise strict.FieldError(f"{describe(edit.subject)} is there twice.", "subject")
        seen.add(edit.subject)
    return list(edits)


def describe(subject: Subject) -> str:
    """Return a subject for people: ``user ann of hub jhub``, ``the default``."""
    if not subject.name:
        return f"the {subject.kind.value.lower()}"
    of_hub = f" of hub {strict.printable(subject.hub, 64)}" if subject.hub else ""
    return f"{subject.kind.value.lower()} {strict.printable(subject.name, 64)}{of_hub}"


def _read_spec(value: Any, key: str) -> Edit:
    body = strict.an_object(value, key)
    strict.no_unknown(body, ("subject", *Limit.FIELDS))
    subject = strict.required(body, "subject", Subject.from_json)
    fields: Mapping[str, Any] = {**dict.fromkeys(Limit.FIELDS), **{k: v for k, v in body.items() if k != "subject"}}
    return Edit(subject, fields)
