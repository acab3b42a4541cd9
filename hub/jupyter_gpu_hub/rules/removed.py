"""The record of limits that were removed, for the list of changes. Pure.

Changes are recorded with their limit, and a removed limit is no more. So one object has the newest of those, as an
annotation. It is a ``GpuLimit`` about a user of no hub, so it limits no one; no other kind of object is needed, nor
another right of the service.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.changes import LimitChange, encode_changes
from jupyter_gpu.model.limits.limit import GROUP, MANAGED_BY, VERSION, Limit, Subject, SubjectKind

from .known import KnownLimit
from .packed import pack

OBJECT = "removed-limits"
"""Name of the object."""
REMOVED = "jupyter-gpu.io/removed"
"""Its annotation: a JSON list of `RemovedLimit`, newest last."""
SUBJECT = Subject(SubjectKind.USER, "removed-limits", "jupyter-gpu.io/none")
MOST, CHANGES_OF_ONE = 100, 5
"""Removed limits that are recorded, and the newest changes of each."""
MAX_BYTES = 128 * 1024
"""Limit for the annotation; the oldest go first. All annotations of an object may have 256 KiB."""


@dataclass(frozen=True, slots=True)
class RemovedLimit:
    """A limit that was removed."""

    object_name: str
    uid: str
    subject: Subject
    changes: tuple[LimitChange, ...]
    """The newest changes, oldest first; the last is the removal."""

    @classmethod
    def of(cls, limit: KnownLimit, subject: Subject, removal: LimitChange) -> RemovedLimit:
        """Return what is recorded of a limit."""
        return cls(limit.name, limit.uid, subject, (*limit.changes, removal)[-CHANGES_OF_ONE:])

    @classmethod
    def from_json(cls, value: Any, key: str = "removed") -> RemovedLimit:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        read = strict.list_of(LimitChange.from_json, CHANGES_OF_ONE)
        return cls(
            strict.required(body, "object", strict.text(253)),
            strict.required(body, "uid", strict.text(64)),
            strict.required(body, "subject", Subject.from_json),
            strict.required(body, "changes", read),
        )

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        return {
            "object": self.object_name,
            "uid": self.uid,
            "subject": self.subject.to_json(),
            "changes": [change.to_json() for change in self.changes],
        }

    def known(self) -> KnownLimit:
        """Return it as the list of changes shows limits."""
        recorded = pack(encode_changes(self.changes).encode())
        return KnownLimit(self.object_name, self.uid, "", 0, Limit(self.subject), recorded)


def is_record(item: Mapping[str, Any]) -> bool:
    """Tell whether an object is the record, and not a limit."""
    spec = item.get("spec")
    subject = spec.get("subject") if isinstance(spec, Mapping) else None
    return objects.name(item) == OBJECT and subject == SUBJECT.to_json()


def read_record(item: Mapping[str, Any]) -> tuple[RemovedLimit, ...]:
    """Return the recorded limits, oldest first; none where they can't be read."""
    try:
        text = objects.annotation(item, REMOVED) or "[]"
        return strict.list_of(RemovedLimit.from_json, MOST)(strict.loads(text, MAX_BYTES), REMOVED)
    except strict.FieldError:
        return ()


def updated(
    record: Iterable[RemovedLimit], added: Sequence[RemovedLimit], forgotten: Iterable[str] = ()
) -> tuple[RemovedLimit, ...]:
    """Return the record with more limits, and without those of these uids; the newest, as many as may be."""
    without = {*forgotten, *(limit.uid for limit in added)}
    kept = [limit for limit in record if limit.uid not in without] + list(added)
    kept = kept[-MOST:]
    sizes = [len(strict.dumps(limit.to_json()).encode()) + 2 for limit in kept]
    while sum(sizes) > MAX_BYTES:
        del kept[0], sizes[0]
    return tuple(kept)


def record_object(record: Iterable[RemovedLimit], writer: str) -> dict[str, Any]:
    """Return the object to create; of it ``metadata.annotations`` is what changes later."""
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "GpuLimit",
        "metadata": {
            "name": OBJECT,
            "labels": {MANAGED_BY: writer},
            "annotations": {REMOVED: strict.dumps([limit.to_json() for limit in record])},
        },
        "spec": {"subject": SUBJECT.to_json()},
    }
