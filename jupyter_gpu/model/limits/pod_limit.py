"""The limit of one pod, as the scheduler writes it into ``allocated`` for the pod's panel."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from .. import strict
from ..quantity import MAX_BYTES, MAX_MILLI
from .source import MAX_TIME, UNSET, Source

_read_milli = strict.integer(0, MAX_MILLI)
_read_bytes = strict.integer(0, MAX_BYTES)
MAX_RECLAIMS = 8
"""Most entries of `PodLimit.reclaimed`."""


class Reclaim(NamedTuple):
    """An amount that is taken back for others, and when."""

    milli: int
    at: float
    """Seconds since 1970."""


class LimitWithWorkers(NamedTuple):
    """The most that a pod and its workers on other nodes may have together, and the limit behind it.

    JSON: ``{"milli": 2000, "max": 2000, "source": {…}, "reclaimed": [{"milli", "at"}]}``. What their owner's other pods
    hold is taken off; what the workers hold is not, nor what they still close.
    """

    milli: int | None
    """As `PodLimit.milli`."""
    max: int | None
    """As `PodLimit.max`."""
    source: Source
    """The limit that sets ``max``."""
    reclaimed: tuple[Reclaim, ...] = ()
    """The amounts taken back for others from the pod and its workers, earliest first; empty: none from the workers."""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; what is ``None`` is left out."""
        body = {"milli": self.milli, "max": self.max, "source": self.source.to_json()}
        return strict.without_none({**body, "reclaimed": _reclaims_json(self.reclaimed)})

    @classmethod
    def from_json(cls, value: Any, key: str) -> LimitWithWorkers:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        source = strict.required(body, "source", Source.from_json)
        return cls(*_read_ends(body, key), source, tuple(strict.optional(body, "reclaimed", _read_reclaims) or ()))


@dataclass(frozen=True, slots=True)
class PodLimit:
    """The most that a pod may have now, the limit of its owner behind it, and when GPUs above it are taken back.

    JSON: ``{"milli": 1000, "max": 2000, "source": {…}, "giveBackAt": 1767225600, "reclaimed": [{"milli", "at"}],
    "memory": 42949672960, "withWorkers": {…}}``.
    """

    milli: int | None
    """The owner's maximum less what the owner's other pods hold: where the pod's slider ends. ``None``: unlimited."""
    max: int | None
    """The owner's maximum that is in force, in milli; ``None``: unlimited, and then ``milli`` is ``None`` as well."""
    source: Source = UNSET
    """The limit that sets ``max``."""
    give_back_at: float | None = None
    """Seconds since 1970 at which GPUs above the limit are taken back, or, where none are above it, the first of
    ``reclaimed``; ``None``: none are."""
    reclaimed: tuple[Reclaim, ...] = ()
    """The amounts taken back for others: guaranteed to them, or held by a preemptible pod. Earliest first."""
    memory: int | None = None
    """Bytes of GPU memory that the owner's other pods leave, the pod's workers not counted among these; ``None``:
    unlimited, or no GPU here has more."""
    with_workers: LimitWithWorkers | None = None
    """The same of the pod and its workers as one; ``None``: ``milli`` and ``max`` hold for both. To ``milli`` a worker
    is another pod: so servers understand it that add the workers' GPUs themselves."""

    def together(self) -> PodLimit:
        """Return the limit of the pod and its workers as one: of all that its user can wish for."""
        if self.with_workers is None:
            return self
        milli, most, source, reclaimed = self.with_workers
        found = replace(self, milli=milli, max=most, source=source, with_workers=None)
        if not reclaimed:
            return found
        own = self.reclaimed[0].at if self.reclaimed else None
        at = reclaimed[0].at if self.give_back_at in (None, own) else self.give_back_at
        return replace(found, give_back_at=at, reclaimed=reclaimed)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object; what is ``None`` is left out."""
        body = {
            "milli": self.milli,
            "max": self.max,
            "source": self.source.to_json(),
            "giveBackAt": self.give_back_at,
            "reclaimed": _reclaims_json(self.reclaimed),
            "memory": self.memory,
            "withWorkers": self.with_workers.to_json() if self.with_workers else None,
        }
        return strict.without_none(body)

    @classmethod
    def from_json(cls, value: Any, key: str = "limit") -> PodLimit:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        milli, most = _read_ends(body, key)
        return cls(
            milli=milli,
            max=most,
            source=strict.required(body, "source", Source.from_json),
            give_back_at=strict.optional(body, "giveBackAt", _read_time),
            reclaimed=tuple(strict.optional(body, "reclaimed", _read_reclaims) or ()),
            memory=strict.optional(body, "memory", _read_bytes),
            with_workers=strict.optional(body, "withWorkers", LimitWithWorkers.from_json),
        )


def _read_ends(body: Mapping[str, Any], key: str) -> tuple[int | None, int | None]:
    milli, most = (strict.optional(body, name, _read_milli) for name in ("milli", "max"))
    if (milli is None) != (most is None):
        raise strict.FieldError(f"{key!r} must have both of 'milli' and 'max', or neither.", key)
    return milli, most


def _reclaims_json(reclaims: Iterable[Reclaim]) -> list[dict[str, Any]] | None:
    return [item._asdict() for item in reclaims] or None


def _read_reclaim(value: Any, key: str) -> Reclaim:
    body = strict.an_object(value, key)
    return Reclaim(strict.required(body, "milli", _read_milli), strict.required(body, "at", _read_time))


_read_reclaims = strict.list_of(_read_reclaim, MAX_RECLAIMS)


def _read_time(value: Any, key: str) -> float:
    number = not isinstance(value, bool) and isinstance(value, (int, float)) and math.isfinite(value)
    if not number or not 0 <= value <= MAX_TIME:
        raise strict.FieldError(f"{key!r} must be seconds since 1970.", key)
    return float(value)
