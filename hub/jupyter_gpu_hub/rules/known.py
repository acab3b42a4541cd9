"""A limit as the API server has it, read once. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.limits.changes import LimitChange
from jupyter_gpu.model.limits.limit import HUB_PROPERTIES, Limit, Subject
from jupyter_gpu.model.limits.read_limit import changes_of, read_limit


@dataclass(frozen=True, slots=True)
class KnownLimit:
    """One ``GpuLimit``: the object, and what it says."""

    object: Mapping[str, Any]
    limit: Limit

    @classmethod
    def of(cls, item: Mapping[str, Any]) -> KnownLimit:
        """Read an object."""
        return cls(item, read_limit(item))

    @property
    def name(self) -> str:
        """Name of the object."""
        return objects.name(self.object)

    @property
    def version(self) -> str:
        """Version of what the limit says, which a change must name: the status changes without it."""
        return f"{self.uid[:8]}-{objects.generation(self.object)}"

    @property
    def resource_version(self) -> str:
        """Version of the whole object, which a write must name."""
        return objects.resource_version(self.object)

    @property
    def uid(self) -> str:
        """Identity of the object."""
        return objects.uid(self.object)

    @property
    def changes(self) -> tuple[LimitChange, ...]:
        """Recorded changes, oldest first."""
        return changes_of(self.object)

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
