"""Effects of a cell on the namespace in which it ran: names that it assigned and deleted, values that it changed."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass

from jupyter_gpu.remote import codec
from jupyter_gpu.remote.codec import Namespace
from jupyter_gpu.remote.rules import shipping
from jupyter_gpu.remote.rules.names import CellNames


@dataclass(frozen=True)
class Outcome:
    """Effects of one cell."""

    assigned: frozenset[str]
    deleted: frozenset[str]
    changed: frozenset[str]
    """Names that it did not assign, and whose values it changed in place."""
    unwatched: frozenset[str]
    """Names that it read, and of which it is not known whether it changed them in place."""


class _Mark:
    """The value of a name that the cell may assign and delete, until it does."""


_MARK = _Mark()


class Watch:
    """One cell: made before it, asked once afterwards, also after an error."""

    def __init__(self, space: Namespace, names: CellNames, needed: Set[str]) -> None:
        """``needed`` are the names whose values in ``space`` are those of the notebook."""
        self._space = space
        self._preparation = shipping.preparation(names, needed)
        self._needed = {name: space[name] for name in needed & space.keys()}
        self._fingerprints = self._measure()
        self._old: Namespace = {}
        for name in self._preparation.hide | self._preparation.mark:
            if name in space:
                self._old[name] = space.pop(name)
        space.update(dict.fromkeys(self._preparation.mark, _MARK))

    def outcome(self) -> Outcome:
        """Return what the cell did, and give the names that it did not touch their old values."""
        space, marked = self._space, self._preparation.mark
        untouched = {name for name in self._preparation.hide if name not in space}
        untouched |= {name for name in marked if space.get(name) is _MARK}
        deleted = {name for name in {*marked, *self._needed} if name not in space}
        assigned = {name for name in self._preparation.hide | marked if name not in untouched | deleted}
        assigned |= {name for name, value in self._needed.items() if name in space and space[name] is not value}
        for name in untouched:
            space.pop(name, None)
            if name in self._old:
                space[name] = self._old[name]
        now = self._measure()
        changed = {name for name, number in self._fingerprints.items() if now.get(name, number) != number}
        unwatched = {
            name
            for name, value in self._needed.items()
            if name not in self._fingerprints.keys() & now.keys() and not isinstance(value, codec.NEVER_CHANGED)
        }
        done = assigned | deleted
        return Outcome(
            frozenset(assigned), frozenset(deleted), frozenset(changed - done), frozenset(unwatched - done - changed)
        )

    def _measure(self) -> Mapping[str, int]:
        """Return the fingerprints of what is quick to pickle; of the rest it is not found out."""
        return codec.measure(self._space, self._needed, inline=codec.QUICK, follow=False).fingerprints
