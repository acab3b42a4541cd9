"""Sources of values: which limit a value comes from, in words that users and administrators read."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, tzinfo
from enum import StrEnum
from typing import Any, Generic, TypeVar

from .. import strict
from ..message import Message, gettext

T = TypeVar("T")
U = TypeVar("U")

MAX_NAME = 512
"""Most letters of a name that is shown."""
MAX_TIME = 253402300799
"""Seconds since 1970 at the end of the year 9999, the last that a date can have."""

_MONTHS = (
    gettext("%1 January"),
    gettext("%1 February"),
    gettext("%1 March"),
    gettext("%1 April"),
    gettext("%1 May"),
    gettext("%1 June"),
    gettext("%1 July"),
    gettext("%1 August"),
    gettext("%1 September"),
    gettext("%1 October"),
    gettext("%1 November"),
    gettext("%1 December"),
)
"""Days of each month: other languages have another order, and endings."""
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

    def sentence(self, *, you: bool = True, now: float | None = None, zone: tzinfo = UTC) -> Message:
        """Return ``set for group ml by root on 3 May``, to stand after an amount and a comma.

        ``you``: the reader is the owner, not an administrator. The year is added where it is not obvious at ``now``,
        in seconds since 1970; ``zone`` is the time zone of the installation.
        """
        if self.kind is SourceKind.UNSET:
            return gettext("as no limit is set")
        written = self._written(now, zone)
        if self.kind in _EVERYONE or self.part:
            text = gettext("%1, set %2", self._what(you), written) if written else self._what(you)
        elif written:
            text = gettext("set for %1 %2", self._whom(you), written)
        else:
            text = gettext("set for %1", self._whom(you))
        return (
            gettext("%1; it cannot be read, so the least that it could mean holds", text) if self.unreadable else text
        )

    def _whom(self, you: bool) -> Message:
        match self.kind:
            case SourceKind.USER:
                return gettext("you") if you else gettext("user %1", _shown(self.name))
            case SourceKind.GROUP:
                return gettext("group %1", _shown(self.name))
            case SourceKind.NAMESPACE:
                return gettext("namespace %1", _shown(self.name))
        return gettext("everyone")

    def _what(self, you: bool) -> Message:
        cap = self.kind is SourceKind.CAP
        match self.part:
            case LimitPart.HOURS if cap:
                return gettext("the hours of the cap for everyone")
            case LimitPart.HOURS:
                return gettext("the hours for %1", self._whom(you))
            case LimitPart.BUDGET if cap:
                return gettext("the used-up budget of the cap for everyone")
            case LimitPart.BUDGET:
                return gettext("the used-up budget for %1", self._whom(you))
        return gettext("the cap for everyone") if cap else gettext("the default for everyone")

    def _written(self, now: float | None, zone: tzinfo) -> Message | None:
        """Return ``by root on 3 May``, or as much of it as is known."""
        by = _shown(self.by)
        if self.at is None:
            return gettext("by %1", by) if self.by else None
        day = date(datetime.fromtimestamp(self.at, UTC).astimezone(zone))
        if now is not None and not self.at <= now <= self.at + _SURE:
            day = gettext("%1 %2", day, datetime.fromtimestamp(self.at, UTC).astimezone(zone).year)
        return gettext("by %1 on %2", by, day) if self.by else gettext("on %1", day)

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


def date(day: datetime) -> Message:
    """Return ``3 May``, in English whatever the language of the machine."""
    return Message(_MONTHS[day.month - 1].pattern, day.day)


def _shown(name: str) -> str:
    return strict.printable(name, 64)
