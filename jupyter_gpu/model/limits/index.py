"""An index of limits by owner, so that finding the limits of one owner does not cost a search of all."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import TypeAlias

from .effective import EffectiveLimits, applies, effective
from .limit import Limit, SubjectKind
from .owner import Owner

OwnerKey: TypeAlias = tuple[str, str]
"""Kind of owner and name: the same for the users of one name in all hubs."""
EVERYONE: OwnerKey = ("", "")
_OWN = (SubjectKind.USER, SubjectKind.NAMESPACE)


class LimitIndex:
    """The limits of a cluster, by name of their object and by owner."""

    def __init__(self, limits: Iterable[Limit] = ()) -> None:
        self._limits: dict[str, Limit] = {}
        self._by_key: dict[OwnerKey, tuple[Limit, ...]] = {}  # most have one
        self._effective: dict[tuple[str, ...], EffectiveLimits] = {}
        self.version = 0
        """Number that is another one after each change."""
        for limit in limits:
            self.put(limit)

    def put(self, limit: Limit) -> frozenset[OwnerKey]:
        """Add or replace a limit; return the keys of the owners for whom something may have changed."""
        if self._limits.get(limit.object_name) == limit:
            return frozenset()
        before, keys = self.remove(limit.object_name), _keys(limit)
        self._limits[limit.object_name] = limit
        self._effective.clear()
        self.version += 1
        for key in keys:
            self._by_key[key] = (*self._by_key.get(key, ()), limit)
        return before | keys

    def remove(self, object_name: str) -> frozenset[OwnerKey]:
        """Forget a limit; return the keys of the owners for whom something may have changed; none if it is unknown."""
        before = self._limits.pop(object_name, None)
        if before is None:
            return frozenset()
        self.version += 1
        keys = _keys(before)
        for key in keys:
            left = tuple(limit for limit in self._by_key[key] if limit is not before)
            if left:
                self._by_key[key] = left
            else:
                del self._by_key[key]
        self._effective.clear()
        return keys

    def of(self, owner: Owner) -> list[Limit]:
        """Return the limits that count for ``owner``."""
        found = [limit for key in (key_of(owner), EVERYONE) for limit in self._by_key.get(key, ())]
        return [limit for limit in found if applies(limit, owner)]

    def effective(self, owner: Owner) -> EffectiveLimits:
        """Return the effective limits of ``owner``; owners for whom the same limits count share one result."""
        mine = self.of(owner)
        key = tuple(limit.object_name for limit in mine)
        if key not in self._effective:
            self._effective[key] = effective(owner, mine)
        return self._effective[key]

    def once(self, owner: Owner) -> tuple[EffectiveLimits, bool]:
        """Return the effective limits of ``owner``, and whether they are kept, as other owners share them.

        For those who go through all owners: thousands may have a limit of their own.
        """
        mine = self.of(owner)
        if any(limit.subject and limit.subject.kind in _OWN for limit in mine):
            return effective(owner, mine), False
        return self.effective(owner), True

    def __iter__(self) -> Iterator[Limit]:
        """Yield all limits, by name of their object."""
        return (self._limits[name] for name in sorted(self._limits))

    def __len__(self) -> int:
        """Return the number of limits."""
        return len(self._limits)


def key_of(owner: Owner) -> OwnerKey:
    """Return the key of an owner."""
    return (owner.kind, owner.name)


def touches(keys: Collection[OwnerKey], owner: Owner) -> bool:
    """Tell whether a change for these keys may concern ``owner``."""
    return EVERYONE in keys or key_of(owner) in keys


def _keys(limit: Limit) -> frozenset[OwnerKey]:
    subject = limit.subject
    if subject is None:  # it can't be read, so it is about no one
        return frozenset()
    if subject.kind is SubjectKind.GROUP:
        return frozenset(("User", member) for member in limit.members)
    if subject.kind in (SubjectKind.USER, SubjectKind.NAMESPACE):
        return frozenset({(subject.kind.value, subject.name)})
    return frozenset({EVERYONE})
