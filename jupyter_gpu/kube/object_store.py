"""The calls of `Kube` that a store of the same objects elsewhere can answer as well."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Protocol

from .client import MERGE_PATCH, PAGE, SILENCE, Listing, Trim, WatchEvent


class ObjectStore(Protocol):
    """Objects by path. The methods, and the `KubeError` that they raise, are those of `Kube`."""

    async def get(self, path: str) -> dict[str, Any]:
        """Read one object."""

    async def list(
        self,
        path: str,
        *,
        labels: str = "",
        fields: str = "",
        resource_version: str = "",
        trim: Trim | None = None,
        size: int = PAGE,
    ) -> Listing:
        """List all objects that there are now."""

    def watch(
        self,
        path: str,
        *,
        resource_version: str,
        labels: str = "",
        fields: str = "",
        silence: float = SILENCE,
        opened: Callable[[], None] | None = None,
    ) -> AsyncIterator[WatchEvent]:
        """Yield every change after ``resource_version``, in order."""

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create an object."""

    async def patch(
        self, path: str, body: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, content_type: str = MERGE_PATCH
    ) -> dict[str, Any]:
        """Change an object; ``metadata.uid`` and ``metadata.resourceVersion`` in ``body`` are preconditions."""

    async def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> None:
        """Remove an object, if it is still the one with this uid and version."""
