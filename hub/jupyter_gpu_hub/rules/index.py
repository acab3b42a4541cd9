"""The effective limits of many users: those to whom the same limits apply share one result. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.limits.effective import Effective, applies, effective
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.limit import Limit, SubjectKind
from jupyter_gpu.model.limits.owner import Owner


class EffectiveLimits:
    """The limits at one moment, and the effective limits of each owner."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self.limits = tuple(limits)  # they live as long as the results, so an identity names one of them
        self._index = LimitIndex(self.limits)
        self._results: dict[tuple[str, str, tuple[int, ...]], Effective] = {}

    def applying(self, owner: Owner) -> list[Limit]:
        """Return the limits that apply to an owner."""
        return [limit for limit in self._index.of(owner) if applies(limit, owner)]

    def effective(self, owner: Owner) -> Effective:
        """Return the effective limits of an owner."""
        mine = self.applying(owner)
        key = (owner.kind, owner.hub, tuple(map(id, mine)))
        if key not in self._results:
            self._results[key] = effective(owner, mine)
        return self._results[key]

    def users(self, hub: str) -> set[str]:
        """Return the names of a hub's users that have a limit of their own."""
        return {
            limit.subject.name
            for limit in self.limits
            if limit.subject and limit.subject.kind is SubjectKind.USER and limit.subject.hub in ("", hub)
        }
