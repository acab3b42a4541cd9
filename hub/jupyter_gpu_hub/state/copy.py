"""A copy of the objects below one path of the API server, each read once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Generic, TypeVar

from jupyter_gpu.kube import Kube, ObjectChange, Reflector, Selection
from jupyter_gpu.kube.client import Trim
from jupyter_gpu.kube.rules import objects

T = TypeVar("T")


class Copy(Generic[T]):
    """The values of all objects, by the object's identity; those of which ``read`` makes ``None`` are left out."""

    def __init__(
        self,
        kube: Kube,
        path: str,
        read: Callable[[Mapping[str, Any]], T | None],
        changed: Callable[[], None],
        *,
        trim: Trim | None = None,
        optional: bool = False,
    ) -> None:
        self._read = read
        self._changed = changed
        self._values: dict[str, T] = {}
        self.values: Mapping[str, T] = MappingProxyType(self._values)
        """Values by uid. Read only."""
        self.version = 0
        """Counts the changes."""
        self.reflector = Reflector(kube, Selection(path, trim=trim, optional=optional), on_change=self._take)

    @property
    def ready(self) -> bool:
        """Whether it was listed once."""
        return self.reflector.synced.is_set()

    def _take(self, change: ObjectChange) -> None:
        uid = objects.uid(change.object)
        value = None if change.kind == "removed" else self._read(change.object)
        if value is None:
            if self._values.pop(uid, None) is None:
                return
        elif self._values.get(uid) == value:
            return
        else:
            self._values[uid] = value
        self.version += 1
        self._changed()
