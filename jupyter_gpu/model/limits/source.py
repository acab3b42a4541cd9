"""Sources of values: which limit a value comes from, in words that users and administrators read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Any, Generic, TypeVar

from .. import strict

T = TypeVar("T")
U = TypeVar("U")

MAX_NAME = 512
"""Most letters of a name that is shown."""
MAX_TIME = 253402300799
"""Seconds since 1970 at the end of the year 9999, the last that a date can have."""
MONTHS = ("January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
  "December")  # fmt: skip
"""Names of months in English, whatever the language of the machine."""

_SURE = 300 * 24 * 3600
"""Seconds within which a day and a month name one date; beyond that, the year is added."""


class SourceKind(StrEnum):
    """The kind of limit that a value comes from."""

    USER = "User"
    GROUP = "Group"
    NAMESPACE = "Namespace"
    DEFAULT = "Default"
    CAP = "Cap"
    UNSET = "Unset"
    """No limit sets the value."""


_EVERYONE = (SourceKind.DEFAULT, SourceKind.CAP)


class LimitPart(StrEnum):
    """The part of a limit that lowers a maximum for some time."""

    HOURS = "hours"
    BUDGET = "budget"


@dataclass(frozen=True, slots=True)
class Source:
    """The origin of one value: the subject of a limit, its writer, and the time of the write."""

    kind: SourceKind = SourceKind.UNSET
    name: str = ""
    """Name of the user, group or namespace."""
    by: str = ""
    """Name of the person, or of the tool such as Helm, that wrote it last; empty: not known."""
    at: int | None = None
    """Seconds since 1970 of that; ``None``: not known."""
    object: str = ""
    """Name of the ``GpuLimit``."""
    part: LimitPart | None = None
    """The hours or the spent budget of that limit that lower the maximum now."""
    unreadable: bool = False
    """Whether the value could not be read, so that the least that it could mean counts."""

    def sentence(self, *, you: bool = True, now: float | None = None, zone: tzinfo = UTC) -> str:
        """Return ``set for group ml by root on 3 May``, to stand after an amount and a comma.

        ``you``: the reader is the owner, not an administrator. The year is added where it is not obvious at ``now``,
        in seconds since 1970; ``zone`` is the time zone of the installation.
        """
        if self.kind is SourceKind.UNSET:
            return "as no limit is set"
        written = [*([f"by {_shown(self.by)}"] if self.by else []), *self._day(now, zone)]
        if self.kind in _EVERYONE or self.part:
            text = ", set ".join(filter(None, [self._what(you), " ".join(written)]))
        else:
            text = " ".join([f"set for {self._whom(you)}", *written])
        return f"{text}; it cannot be read, so the least that it could mean holds" if self.unreadable else text

    def _whom(self, you: bool) -> str:
        if self.kind is SourceKind.USER:
            return "you" if you else f"user {_shown(self.name)}"
        return "everyone" if self.kind in _EVERYONE else f"{self.kind.value.lower()} {_shown(self.name)}"

    def _what(self, you: bool) -> str:
        cap = self.kind is SourceKind.CAP
        if self.part is None:
            return f"the {'cap' if cap else 'default'} for everyone"
        what = {LimitPart.HOURS: "hours", LimitPart.BUDGET: "used-up budget"}[self.part]
        return f"the {what} of the cap for everyone" if cap else f"the {what} for {self._whom(you)}"

    def _day(self, now: float | None, zone: tzinfo) -> list[str]:
        if self.at is None:
            return []
        day = datetime.fromtimestamp(self.at, UTC).astimezone(zone)
        far = now is not None and not self.at <= now <= self.at + _SURE
        return [f"on {day.day} {MONTHS[day.month - 1]}" + (f" {day.year}" if far else "")]

    def to_json(self) -> dict[str, Any]:
        """Return ``{"kind", "name", "by", "at", "object", "part", "unreadable"}``, empty fields left out."""
        body = {
            "kind": self.kind.value,
            "name": strict.printable(self.name, MAX_NAME) if self.name else None,
            "by": strict.printable(self.by, MAX_NAME) if self.by else None,
            "at": self.at,
            "object": self.object or None,
            "part": self.part.value if self.part else None,
            "unreadable": self.unreadable or None,
        }
        return strict.without_none(body)

    @classmethod
    def from_json(cls, value: Any, key: str = "source") -> Source:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        part = strict.optional(body, "part", strict.one_of(*LimitPart))
        return cls(
            kind=SourceKind(strict.required(body, "kind", strict.one_of(*SourceKind))),
            name=strict.optional(body, "name", strict.label(MAX_NAME)) or "",
            by=strict.optional(body, "by", strict.label(MAX_NAME)) or "",
            at=strict.optional(body, "at", strict.integer(0, MAX_TIME)),
            object=strict.optional(body, "object", strict.text(253)) or "",
            part=LimitPart(part) if part else None,
            unreadable=strict.optional(body, "unreadable", strict.boolean) or False,
        )


UNSET = Source()
"""The source of a value that no limit sets."""


@dataclass(frozen=True, slots=True)
class Sourced(Generic[T]):
    """A value and the limit that it comes from."""

    value: T
    source: Source = UNSET

    def map(self, change: Callable[[T], U]) -> Sourced[U]:
        """Return another value of the same source."""
        return Sourced(change(self.value), self.source)


def _shown(name: str) -> str:
    return strict.printable(name, 64)
