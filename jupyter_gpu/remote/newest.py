"""Places of the newest value of each name: the notebook, or kernels of workers in which a cell changed it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from jupyter_gpu.remote.rules.shipping import There


class Holder(Protocol):
    """A kernel of a worker; one that has ended has nothing."""

    @property
    def there(self) -> Mapping[str, There]:
        """The names that its namespace has."""


H = TypeVar("H", bound=Holder)


@dataclass(frozen=True)
class _Entry(Generic[H]):
    """The kernels that have the newest value of a name."""

    holders: tuple[H, ...]
    here: int | None
    """Fingerprint of the notebook's value of then."""
    sure: bool
    """It is known to be another one than that."""


class Newest(Generic[H]):
    """The names whose newest values are not known to be those of the notebook.

    A value that the notebook has changed since is newer than those: fingerprints tell that.
    """

    def __init__(self) -> None:
        self._entries: dict[str, _Entry[H]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def changed(self, name: str, holder: H) -> None:
        """Note that a cell assigned or changed a name in a kernel."""
        self._entries[name] = _Entry((holder,), holder.there[name].here, sure=True)

    def used(self, name: str, holder: H) -> None:
        """Note that a cell may have changed a name in a kernel, as it could not be watched."""
        known = self._entries.get(name)
        sure = known is not None and known.sure and holder in known.holders
        self._entries[name] = _Entry((holder,), holder.there[name].here, sure)

    def copied(self, name: str, holder: H) -> None:
        """Note that another kernel has the newest value, too."""
        known = self._entries[name]
        self._entries[name] = _Entry((holder, *known.holders), known.here, known.sure)

    def forget(self, name: str) -> None:
        """Note that the notebook has the newest value, or that there is none."""
        self._entries.pop(name, None)

    def holders(self, name: str) -> tuple[H, ...]:
        """Return the kernels with the newest value of a name; the last one that got it comes first."""
        known = self._entries.get(name)
        return tuple(one for one in known.holders if name in one.there) if known else ()

    def held(self, names: Iterable[str]) -> dict[str, tuple[H, ...]]:
        """Return the kernels for each of some names that any has."""
        found = {name: self.holders(name) for name in names}
        return {name: holders for name, holders in found.items() if holders}

    def lost(self, names: Iterable[str], here: Mapping[str, int]) -> list[str]:
        """Return those of some names whose newest values ended with the kernels that had them.

        ``here`` has the fingerprints of the notebook's values: what it has changed since is not lost.
        """
        known = {name: self._entries[name] for name in names if name in self._entries and not self.holders(name)}
        return sorted(name for name, entry in known.items() if entry.sure and entry.here == here.get(name))
