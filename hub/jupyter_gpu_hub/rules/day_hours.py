"""The use of GPUs by day, packed: an account has 35 days, and accounts may be thousands. Pure."""

from __future__ import annotations

import struct
from collections.abc import ItemsView, Iterator, Mapping
from datetime import date

from .packed import pack, unpack

_DAY = struct.Struct("<iq")


class DayHours(Mapping[date, int]):
    """Milli-GPU-seconds by day, in 12 bytes for each or fewer."""

    __slots__ = ("_packed",)

    def __init__(self, hours: Mapping[date, int]) -> None:
        self._packed = pack(b"".join(_DAY.pack(day.toordinal(), hours[day]) for day in sorted(hours)))

    @property
    def _days(self) -> bytes:
        return unpack(self._packed)

    def __getitem__(self, day: date) -> int:
        """Return the use of a day."""
        for found, amount in self.items():
            if found == day:
                return amount
        raise KeyError(day)

    def items(self) -> ItemsView[date, int]:
        """Return the days with their use, in order."""
        return _Items(self)

    def __iter__(self) -> Iterator[date]:
        """Yield the days in order."""
        return (day for day, _ in self.items())

    def __len__(self) -> int:
        """Return the number of days."""
        return len(self._days) // _DAY.size

    def __eq__(self, other: object) -> bool:
        """Tell whether the days and their use are the same."""
        return self._packed == other._packed if isinstance(other, DayHours) else super().__eq__(other)

    __hash__ = None  # type: ignore[assignment] # as of other mappings


class _Items(ItemsView[date, int]):
    """All days with their use, unpacked once."""

    _mapping: DayHours

    def __iter__(self) -> Iterator[tuple[date, int]]:
        for ordinal, amount in _DAY.iter_unpack(self._mapping._days):  # noqa: SLF001 - of the same module
            yield date.fromordinal(ordinal), amount
