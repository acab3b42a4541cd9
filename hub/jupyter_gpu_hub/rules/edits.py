"""Changes of limits: from the body of a request to the write of one object. Pure: time is an argument."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.changes import CHANGES, LimitChange, encode_changes
from jupyter_gpu.model.limits.limit import GROUP, MANAGED_BY, VERSION, Limit, Subject, SubjectKind
from jupyter_gpu.model.limits.owner import object_name
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu.model.message import gettext, sentences

from .known import KnownLimit
from .place import CLUSTER
from .refusals import Refusal

WRITER = "jupyter-gpu-hub"
"""Value of the label by which our objects are known; it leaves them to people."""
KIND = "GpuLimit"


@dataclass(frozen=True, slots=True)
class Edit:
    """A wanted change of the limit of one subject."""

    subject: Subject
    fields: Mapping[str, Any] | None
    """The fields to set; one that is ``None`` is inherited from then on. ``None``: remove the limit."""
    version: str | None = None
    """The object's version that the change is for, empty: there is none; ``None``: whatever there is."""

    @classmethod
    def from_json(cls, value: Any, key: str = "edit") -> Edit:
        """Read ``{"subject": {…}, "set": {…}, "version": "42"}``; ``"set": null`` removes. Raises `FieldError`."""
        body = strict.an_object(value, key)
        strict.no_unknown(body, ("subject", "set", "version"))
        subject = strict.required(body, "subject", Subject.from_json)
        if "set" not in body:
            raise strict.FieldError(gettext("The field 'set' is missing; null removes the limit."), "set")
        return cls(subject, strict.optional(body, "set", read_fields), strict.optional(body, "version", _version))


@dataclass(frozen=True, slots=True)
class Create:
    """Create this object."""

    object: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Patch:
    """Change an object by this merge patch (RFC 7386), if it still has the version that the patch names."""

    object_name: str
    patch: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Delete:
    """Remove an object, if it still has this version."""

    object_name: str
    uid: str
    version: str


@dataclass(frozen=True, slots=True)
class Prepared:
    """The write for one edit, and what it changes."""

    write: Create | Patch | Delete | None
    """``None``: nothing changes."""
    subject: Subject
    object_name: str
    change: LimitChange
    limit: Limit | None
    """The limit afterwards; ``None``: there is none."""


def read_fields(value: Any, key: str = "set") -> Mapping[str, Any]:
    """Read the fields of a limit; their values are checked by `prepare`."""
    body = strict.an_object(value, key)
    strict.no_unknown(body, Limit.FIELDS)
    return body


def prepare(edit: Edit, current: KnownLimit | None, by: str, at: int, *, cap: str = CLUSTER.cap) -> Prepared:
    """Return the write for an edit; raises `FieldError` for values, `Refusal` for what may not be changed here.

    ``current``: the object as it is known, ``None`` if there is none. ``cap``: reason why the cap is not changed here.
    """
    _check_version(edit, current)
    if edit.subject.kind is SubjectKind.CAP:
        raise Refusal(403, cap)
    if current and current.limit.locked:
        raise Refusal(
            403,
            gettext(
                "%1 keeps this limit, and would undo a change made here. Change it there.", current.limit.managed_by
            ),
            locked=True,
        )
    before = current.fields if current else None
    after = None if edit.fields is None else _merged(edit.subject, before or {}, edit.fields)
    name = current.name if current else object_name(edit.subject.kind, edit.subject.name, edit.subject.hub)
    change = LimitChange(by, at, before, after)
    made = _object(name, edit.subject, after or {}, change)
    limit = None if after is None else read_limit(made)
    if limit and current:
        limit = replace(limit, members=current.limit.members, hub_members=current.limit.hub_members)
    return Prepared(_write(name, made, current, change), edit.subject, name, change, limit)


def conflict(edit: Edit, current: KnownLimit | None) -> Refusal:
    """Return the refusal that shows both values, of a change that came too late."""
    changed = current.limit.changed if current else None
    what = (
        gettext("This limit was changed since you looked.")
        if current
        else gettext("This limit was removed since you looked.")
    )
    by = gettext("%1 changed it last.", changed.by) if changed else ""
    return Refusal(
        409,
        sentences(what, by, gettext("Nothing was written: compare both values and decide.")),
        yours=dict(edit.fields) if edit.fields is not None else None,
        theirs=current.fields if current else None,
        version=current.version if current else "",
    )


def _version(value: Any, key: str) -> str:
    return "" if value == "" else strict.text(64)(value, key)


def _check_version(edit: Edit, current: KnownLimit | None) -> None:
    if edit.version is not None and edit.version != (current.version if current else ""):
        raise conflict(edit, current)


def _merged(subject: Subject, before: Mapping[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields after the edit, as every reader writes them; raises `FieldError`."""
    wanted = {key: value for key, value in {**before, **fields}.items() if value is not None}
    ours = {key: value for key, value in wanted.items() if key in Limit.FIELDS}
    limit = read_limit({"spec": {"subject": subject.to_json(), **ours}})
    if limit.problem:
        raise strict.FieldError(limit.problem, ", ".join(sorted(limit.unread & fields.keys())))
    written = {key: value for key, value in limit.spec().items() if key != "subject"}
    return {**written, **{key: value for key, value in wanted.items() if key not in Limit.FIELDS}}


def _object(name: str, subject: Subject, fields: Mapping[str, Any], change: LimitChange) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": KIND,
        "metadata": {
            "name": name,
            "labels": {MANAGED_BY: WRITER},
            "annotations": {CHANGES: encode_changes([change])},
        },
        "spec": {"subject": subject.to_json(), **fields},
    }


def _write(
    name: str, made: Mapping[str, Any], current: KnownLimit | None, change: LimitChange
) -> Create | Patch | Delete | None:
    if current is None:
        return None if change.after is None else Create(made)
    if change.after is None:
        return Delete(name, current.uid, current.resource_version)
    if change.after == change.before:
        return None
    gone = dict.fromkeys((change.before or {}).keys() - change.after.keys())
    changes = encode_changes([*current.changes, change])
    metadata = {"resourceVersion": current.resource_version, "uid": current.uid, "annotations": {CHANGES: changes}}
    return Patch(name, {"metadata": metadata, "spec": {**gone, **change.after}})
