"""The ways to limits, for ``jupyter gpu limits``: what each of them can do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from jupyter_gpu.model.limits.transfer.usage import Month, UsageRow


class LimitAccess(Protocol):
    """A way to limits. Every method raises `GpuError`."""

    def rows(self) -> list[dict[str, Any]]:
        """Return the table of limits, as the REST has it."""

    def set(self, subject: str, fields: Sequence[str] | None) -> Mapping[str, Any]:
        """Set the fields of a limit; ``None`` removes it."""

    def explain(self, user: str) -> Mapping[str, Any]:
        """Return a user's limit, with a sentence."""

    def export(self, kind: str) -> str:
        """Return all limits as ``csv`` or ``json``."""

    def apply(self, text: str, kind: str, *, replace: bool, dry_run: bool) -> Mapping[str, Any]:
        """Write what differs; return the difference."""

    def usage(self, month: Month) -> Sequence[UsageRow]:
        """Return the GPU-hours of a month by user, namespace and group."""
