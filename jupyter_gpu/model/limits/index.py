"""An index of limits by whom they are about, so that the limits of one owner are found without looking at all."""

from __future__ import annotations

from collections.abc import Iterable

from .effective import Effective, applies, effective
from .limit import Limit, SubjectKind
from .owner import Owner


class LimitIndex:
    """All limits, by the names of those whom they are about; made anew when one changes."""

    def __init__(self, limits: Iterable[Limit]) -> None:
        self._everyone: list[Limit] = []
        self._known: dict[tuple[int, ...], Effective] = {}
        self._named: dict[tuple[str, str], list[Limit]] = {}
        for limit in limits:
            for key in _keys(limit):
                self._named.setdefault(key, []).append(limit)
            if limit.subject and limit.subject.kind in (SubjectKind.DEFAULT, SubjectKind.CAP):
                self._everyone.append(limit)

    def of(self, owner: Owner) -> list[Limit]:
        """Return the limits that count for ``owner``."""
        found = [*self._named.get((owner.kind, owner.name), ()), *self._everyone]
        return [limit for limit in found if applies(limit, owner)]

    def effective(self, owner: Owner) -> Effective:
        """Return the effective limits of ``owner``; owners for whom the same limits count share one result."""
        mine = self.of(owner)
        key = tuple(id(limit) for limit in mine)  # they live as long as this index
        if key not in self._known:
            self._known[key] = effective(owner, mine)
        return self._known[key]


def _keys(limit: Limit) -> list[tuple[str, str]]:
    subject = limit.subject
    if subject is None:
        return []
    if subject.kind is SubjectKind.GROUP:
        return [("User", member) for member in limit.members]
    return [(subject.kind.value, subject.name)] if subject.name else []
