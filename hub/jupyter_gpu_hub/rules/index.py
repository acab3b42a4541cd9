"""The limits that may count for a user, found without reading all of them, and the effective limits of many users.

Pure.
"""

from __future__ import annotations

from collections.abc import Iterable

from jupyter_gpu.model.limits.effective import Effective, applies, effective
from jupyter_gpu.model.limits.limit import Limit, SubjectKind
from jupyter_gpu.model.limits.owner import Owner


class LimitIndex:
    """The limits at one moment, by the owners that they are for."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._named: dict[str, list[Limit]] = {}  # users and namespaces by name
        self._groups: dict[str, list[Limit]] = {}  # by member
        self._everyone: list[Limit] = []
        self._memo: dict[tuple[str, str, tuple[int, ...]], Effective] = {}
        for limit in limits:
            kind = limit.subject.kind if limit.subject else None
            if limit.subject is None:
                continue
            if kind in (SubjectKind.DEFAULT, SubjectKind.CAP):
                self._everyone.append(limit)
            elif kind is SubjectKind.GROUP:
                for member in limit.members:
                    self._groups.setdefault(member, []).append(limit)
            else:
                self._named.setdefault(limit.subject.name, []).append(limit)

    def limits(self, owner: Owner) -> list[Limit]:
        """Return the limits that apply to an owner."""
        found = [*self._named.get(owner.name, ()), *self._groups.get(owner.name, ()), *self._everyone]
        return [limit for limit in found if applies(limit, owner)]

    def effective(self, owner: Owner) -> Effective:
        """Return the effective limits of an owner; users to whom the same limits apply share one result."""
        mine = self.limits(owner)
        key = (owner.kind, owner.hub, tuple(id(limit) for limit in mine))  # they live as long as this index
        if key not in self._memo:
            self._memo[key] = effective(owner, mine)
        return self._memo[key]

    def names(self) -> set[str]:
        """Return the names of users that have a limit of their own."""
        return {
            name
            for name, limits in self._named.items()
            if any(limit.subject and limit.subject.kind is SubjectKind.USER for limit in limits)
        }
