"""A ``GpuAccount``: what one owner may have, has and used. Only the scheduler writes it.

The object (``jupyter-gpu.io/v1alpha1``, cluster-scoped), named by `owner.object_name`::

    spec:
      owner: {kind: User, name: ann, hub: jhub}     # a namespace has no hub
    status:
      max: "2"                                      # in force now; or unlimited
      source: {kind: Group, name: ml, by: root, at: 1777802400, object: group-ml-…}
      until: "2026-05-04T20:00:00Z"                 # the maximum changes then; absent: that is not foreseen
      used: "2"                                     # held by all pods together
      waiting: "1"                                  # wanted beside it
      overSince: "2026-05-04T10:00:00Z"             # since when it has more than the maximum; absent: it has not
      giveBackAt: "2026-05-04T10:10:00Z"            # then what is above is taken back
      limits: {max: {value: "2", source: {…}}, …}   # `effective_json`
      hours: {"2026-05-04": "12.5"}                 # GPU-hours of each calendar day, the newest 35
      countedUntil: "2026-05-04T15:00:00Z"          # hours are counted until then
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Any, TypeVar

from .. import strict
from ..quantity import format_milli
from .amount import UNLIMITED, Amount, Unlimited, format_amount, parse_amount, reader
from .changes import format_time, parse_time
from .effective import NO_LIMITS, EffectiveLimits
from .effective_json import effective_json, read_effective
from .limit import read_name
from .owner import Owner, object_name
from .read_limit import parse_guaranteed
from .source import Source, Sourced
from .times import HOUR, MAX_HOURS, format_gpu_hours, parse_gpu_hours

T = TypeVar("T")

KEPT_DAYS = 35
"""Days whose GPU-hours are kept: a few more than the longest window of a budget."""
ALL = MAX_HOURS * HOUR
"""Use of a day that cannot be read, in milli-GPU-seconds: more than any budget, so that none is lifted."""

_NOT_LIMITED: Sourced[Amount] = Sourced(UNLIMITED)


@dataclass(frozen=True, slots=True)
class Account:
    """The account of one owner; amounts in milli, times in seconds since 1970."""

    owner: Owner
    max: Sourced[Amount] = _NOT_LIMITED
    """The maximum that is in force now."""
    until: int | None = None
    """The maximum changes then; ``None``: that is not foreseen."""
    used: int = 0
    """Held by all pods of the owner together: allocated, attached or not yet closed."""
    waiting: int = 0
    """Wanted beside that."""
    over_since: int | None = None
    """Since when more is used than the maximum; ``None``: it is not."""
    give_back_at: int | None = None
    """Then what is above the maximum is taken back."""
    limits: EffectiveLimits = NO_LIMITS
    """The limits without hours and budgets, each value with its source."""
    hours: Mapping[date, int] = field(default_factory=dict, hash=False)
    """Milli-GPU-seconds of each calendar day in the installation's time zone."""
    counted_until: int | None = None
    """Until when ``hours`` are counted; ``None``: not known."""
    problem: str = ""
    """A sentence about what could not be read; empty: all could be."""

    @property
    def object_name(self) -> str:
        """Name of the object."""
        return object_name(self.owner.kind, self.owner.name, self.owner.hub)

    def spec(self) -> dict[str, Any]:
        """Return the spec of the object."""
        owner = {"kind": self.owner.kind, "name": self.owner.name, "hub": self.owner.hub}
        return {"owner": {key: value for key, value in owner.items() if value}}

    def status(self) -> dict[str, Any]:
        """Return the status of the object; `read_account` reads it."""
        times = {
            "until": self.until,
            "overSince": self.over_since,
            "giveBackAt": self.give_back_at,
            "countedUntil": self.counted_until,
        }
        return {
            "max": format_amount(self.max.value),
            "source": self.max.source.to_json(),
            "used": format_milli(self.used),
            "waiting": format_milli(self.waiting),
            **{key: format_time(moment) for key, moment in times.items() if moment is not None},
            "limits": effective_json(self.limits),
            "hours": {day.isoformat(): str(format_gpu_hours(self.hours[day])) for day in sorted(self.hours)},
        }


def read_account(obj: Any) -> Account | None:
    """Read a ``GpuAccount`` from its JSON; never raises. ``None``: its owner can't be read.

    A field of the status that can't be read counts as absent, and `Account.problem` says so; but a day whose use can't
    be read counts as `ALL`, so that no budget is lifted.
    """
    body = obj if isinstance(obj, Mapping) else {}
    try:
        owner = strict.required(strict.required(body, "spec", strict.an_object), "owner", _read_owner)
    except strict.FieldError:
        return None
    status = body.get("status")
    return _read_status(owner, status if isinstance(status, Mapping) else {})


def _read_status(owner: Owner, status: Mapping[str, Any]) -> Account:
    problems: list[str] = []

    def take(key: str, read: Callable[[Any, str], T], absent: T) -> T:
        try:
            found = strict.optional(status, key, read)
        except strict.FieldError as error:
            problems.append(str(error))
            return absent
        return absent if found is None else found

    most = take("max", reader(parse_amount), UNLIMITED)
    return Account(
        owner=owner,
        max=Sourced(most, take("source", Source.from_json, Source())),
        until=take("until", _optional_time, None),
        used=take("used", reader(parse_guaranteed), 0),
        waiting=take("waiting", reader(parse_guaranteed), 0),
        over_since=take("overSince", _optional_time, None),
        give_back_at=take("giveBackAt", _optional_time, None),
        limits=take("limits", read_effective, NO_LIMITS),
        hours=take("hours", _hours_reader(problems), {}),
        counted_until=take("countedUntil", _optional_time, None),
        problem=" ".join(problems),
    )


def _optional_time(value: Any, key: str) -> int | None:
    return parse_time(value, key)


def _hours_reader(problems: list[str]) -> Callable[[Any, str], Mapping[date, int]]:
    def read(value: Any, key: str) -> Mapping[date, int]:
        found: dict[date, int] = {}
        for name, text in strict.an_object(value, key).items():
            try:
                day = date.fromisoformat(name)
            except ValueError:
                problems.append(f"{strict.printable(name, 40)!r} in 'hours' is no day such as 2026-05-04.")
                continue
            found[day] = ALL
            try:
                amount = parse_gpu_hours(text)
                if isinstance(amount, Unlimited):
                    raise ValueError("the use of a day cannot be unlimited.")
                found[day] = amount
            except ValueError as error:
                problems.append(f"The use on {day} counts as more than any budget: {error}")
        return found

    return read


def _read_owner(value: Any, key: str) -> Owner:
    body = strict.an_object(value, key)
    kind = strict.required(body, "kind", strict.one_of("User", "Namespace"))
    name = strict.required(body, "name", read_name)
    hub = strict.optional(body, "hub", read_name) or ""
    if kind == "User" and hub:
        return Owner("User", name, hub)
    if kind == "Namespace" and not hub:
        return Owner("Namespace", name)
    raise strict.FieldError("A user has a 'hub', and a namespace has none.", "hub")
