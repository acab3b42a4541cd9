"""Totals of time shares that never fall. Pure.

An account may give back a little of what it had counted. Prometheus takes every fall of a counter for a restart and
would count all of it twice, so the highest total stays. A new share starts from 0.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # loaded with the first share, not when a server starts
    from jupyter_gpu.model.share import ShareUse

TOTALS = ("guaranteed", "borrowed", "idle", "overrun", "waited", "throttled", "lost")


class Peaks:
    """The highest totals of the shares of one server."""

    def __init__(self) -> None:
        self._most: dict[str, dict[str, int]] = {}
        self._last: dict[str, int] = {}
        """Sum of the last totals, by uuid."""

    def see(self, uses: Mapping[str, ShareUse]) -> dict[str, ShareUse]:
        """Return ``uses`` with totals no lower than before; shares that are not among them are forgotten."""
        self._most = {uuid: self._of(uuid, use) for uuid, use in uses.items()}
        self._last = {uuid: sum(_totals(use).values()) for uuid, use in uses.items()}
        return {uuid: replace(use, **self._most[uuid]) for uuid, use in uses.items()}  # type: ignore[arg-type]

    def _of(self, uuid: str, use: ShareUse) -> dict[str, int]:
        now, before = _totals(use), self._most.get(uuid)
        if before is None or 2 * sum(now.values()) < self._last[uuid]:
            return now
        return {name: max(value, before[name]) for name, value in now.items()}


def _totals(use: ShareUse) -> dict[str, int]:
    return {name: int(getattr(use, name)) for name in TOTALS}
