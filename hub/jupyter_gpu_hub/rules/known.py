"""A limit as the API server has it, read once; of the object only what is shown or written is kept. Pure."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.changes import CHANGES, LimitChange, decode_changes
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject
from jupyter_gpu.model.limits.read_limit import read_limit

from .packed import pack, unpack

_NO_NAMES: frozenset[str] = frozenset()
_NOTHING: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class KnownLimit:
    """One ``GpuLimit``: its identity, and what it says."""

    name: str
    """Name of the object."""
    uid: str
    """Identity of the object."""
    resource_version: str
    """Version of the whole object, which a write must name."""
    generation: int
    limit: Limit
    recorded: bytes = b""
    """The annotation with the changes, packed; empty: there is none."""

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> KnownLimit:
        """Read an object."""
        limit, recorded = read_limit(item), objects.annotation(item, CHANGES)
        return cls(
            name=sys.intern(objects.name(item)),
            uid=objects.uid(item),
            resource_version=objects.resource_version(item),
            generation=objects.generation(item),
            limit=_small(limit),
            recorded=pack(recorded.encode()) if recorded else b"",
        )

    @property
    def version(self) -> str:
        """Version of what the limit says, which a change must name: the status changes without it."""
        return f"{self.uid[:8]}-{self.generation}"

    @property
    def changes(self) -> tuple[LimitChange, ...]:
        """Recorded changes, oldest first; none where they cannot be read."""
        try:
            return decode_changes(unpack(self.recorded).decode()) if self.recorded else ()
        except strict.FieldError:
            return ()

    @property
    def mirrored(self) -> bool:
        """Whether it is the copy of a group's properties, which are changed in the hub."""
        return self.limit.managed_by == HUB_PROPERTIES

    @property
    def fields(self) -> dict[str, Any]:
        """The spec without its subject."""
        return {key: value for key, value in self.limit.spec().items() if key != "subject"}


def find(subject: Subject, known: Iterable[KnownLimit]) -> KnownLimit | None:
    """Return the object about a subject that a change is for: of several one that people may change, then by name.

    Copies of a group's properties are left out: a limit is written beside them, and wins.
    """
    mine = [item for item in known if item.limit.subject == subject and not item.mirrored]
    return min(mine, key=lambda item: (item.limit.locked, item.name), default=None)


def _small(limit: Limit) -> Limit:
    """Return the same limit in less memory: texts that others have too are shared, and changes are kept as text."""
    subject, changed = limit.subject, limit.changed
    return replace(
        limit,
        subject=subject and Subject(subject.kind, sys.intern(subject.name), sys.intern(subject.hub)),
        changed=changed and LimitChange(sys.intern(changed.by), changed.at),
        members=limit.members or _NO_NAMES,
        hub_members=limit.hub_members or _NOTHING,
        unread=limit.unread or _NO_NAMES,
        models=limit.models or _NOTHING,
        extra=limit.extra or _NOTHING,
        object_name=sys.intern(limit.object_name),
    )
