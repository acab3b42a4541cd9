"""A copy of the objects below one path of the API server, each read once; of an object only its value is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar, cast

from jupyter_gpu.kube import ObjectChange, ObjectStore, Reflector, Selection
from jupyter_gpu.kube.rules import objects

T = TypeVar("T")

PAGE = 100
"""Objects of one page of a list: they are in memory as they are until the page was read."""


class Kept(Mapping[str, Any]):
    """The kept part of an object: as a mapping only the metadata that identify it, and its value in addition."""

    __slots__ = ("uid", "value", "version")

    def __init__(self, uid: str, version: str, value: Any) -> None:
        self.uid = uid
        self.version = version
        self.value = value

    def __getitem__(self, key: str) -> Any:
        """Return the metadata."""
        if key != "metadata":
            raise KeyError(key)
        return {"uid": self.uid, "resourceVersion": self.version}

    def __iter__(self) -> Iterator[str]:
        """Yield the one key."""
        return iter(("metadata",))

    def __len__(self) -> int:
        """Return 1."""
        return 1


class Copy(Generic[T]):
    """The values of all objects; those of which ``read`` makes ``None`` are left out.

    Objects are listed page by page and read as they come, so that never all of them are in memory as they are.
    ``changed`` is called with a value before and after a change; ``None``: there was none, or is none any more.
    """

    def __init__(
        self,
        store: ObjectStore,
        path: str,
        read: Callable[[Mapping[str, Any]], T | None],
        changed: Callable[[T | None, T | None], None],
        *,
        optional: bool = False,
    ) -> None:
        self._read = read
        self._changed = changed
        self._values: dict[str, T] = {}
        self.version = 0
        """Counts the changes."""
        selection = Selection(path, trim=self._kept, optional=optional, page=PAGE)
        self.reflector = Reflector(store, selection, on_change=self._take, newest=True)

    def __iter__(self) -> Iterator[T]:
        """Yield the values."""
        return iter(self._values.values())

    @property
    def ready(self) -> bool:
        """Whether it was listed once."""
        return self.reflector.synced.is_set()

    def _kept(self, item: dict[str, Any]) -> dict[str, Any]:
        kept = Kept(objects.uid(item), objects.resource_version(item), self._read(item))
        return cast("dict[str, Any]", kept)  # all that the reflector does is to look at the metadata

    def _take(self, change: ObjectChange) -> None:
        kept = cast("Kept", change.object)
        before: T | None = self._values.get(kept.uid)
        after: T | None = None if change.kind == "removed" else kept.value
        if before == after:
            return
        if after is None:
            del self._values[kept.uid]
        else:
            self._values[kept.uid] = after
        self.version += 1
        self._changed(before, after)
