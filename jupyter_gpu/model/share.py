"""The figures of a time share that its user sees: its totals, its bank, the number of its neighbours. Pure.

All times are whole microseconds. Totals count since the node made the share; `rates` makes of two of them what
the time in between was spent on.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple

from . import strict
from .gpu import read_uuid
from .quantity import MILLI_PER_GPU

MAX_SHARES = 1000
"""Most shares of one GPU: none is smaller than a thousandth."""
MAX_REASON = 200

_time = strict.integer(0, strict.MAX_GENERATION)
_milli = strict.integer(1, MILLI_PER_GPU)


class GuestUse(NamedTuple):
    """The use that guests make of a GPU while the shares that have it rest."""

    busy: float
    """Part of the last period in which they ran: 0–1."""
    memory: int
    """Bytes in use by their processes."""

    @classmethod
    def from_json(cls, value: Any, key: str = "guest") -> GuestUse:
        """Read and check the JSON; raises `FieldError`."""
        body = strict.an_object(value, key)
        return cls(strict.required(body, "busy", _part), strict.required(body, "memory", _time))


@dataclass(frozen=True, slots=True)
class ShareUse:
    """One share at one moment."""

    uuid: str
    """Uuid of its GPU."""
    allocated: int
    """Milli that it was given."""
    effective: int
    """Milli that it earns now: co-adjustment lends and borrows between the shares of a GPU."""
    guaranteed: int
    """Used of what it earned."""
    borrowed: int
    """Used from its bank."""
    idle: int
    """Used while no share with a claim wanted the GPU: free."""
    overrun: int
    """Used beyond its claim while others had one, by work that cannot be interrupted: paid back from what it earns."""
    switching: int
    """Its part of the cost of passing the GPU from share to share."""
    waited: int
    """Time with work and without the GPU."""
    throttled: int
    """The part of it in which it had used up what it earned and its bank."""
    lost: int
    """Saved, but expired or above the cap."""
    balance: int
    """In its bank now."""
    cap: int
    """The most that its bank holds."""
    expires: int | None
    """Time from now until the next deposit is lost; ``None``: there is none."""
    sharing: int
    """Number of other shares of the GPU; never their owners."""
    period: int
    """Length of a period, in which it earns ``effective`` thousandths of it."""
    busy: float | None = None
    """Part of the time that the whole GPU works, for all shares together: 0–1; ``None`` where that is not known."""
    reason: str = ""
    """Reason for ``effective``, in words."""
    memory_used: int | None = None
    """Bytes in use by all its processes."""
    memory_limit: int | None = None
    """Most bytes that they may use; ``None``: no limit."""
    guest: GuestUse | None = None
    """The use that guests make of its GPU; ``None``: there are none, or it is one itself."""

    @property
    def slice(self) -> int:
        """Time that it earns in a period."""
        return self.effective * self.period // MILLI_PER_GPU

    @property
    def with_work(self) -> int:
        """Time that it had the GPU, or work and not the GPU."""
        return self.guaranteed + self.borrowed + self.idle + self.overrun + self.waited

    @property
    def exclusive(self) -> bool:
        """Whether it is the whole GPU, and no guest can come beside it."""
        return self.allocated == MILLI_PER_GPU and self.memory_limit is None

    def aged(self, passed: int) -> ShareUse:
        """Return the share as it is ``passed`` microseconds later, if its node has nothing new to report.

        A full bank that is not used stays full: what expires is replaced at once, and the next to expire is as old.
        """
        if self.expires is None or self.balance >= self.cap:
            return self
        return replace(self, expires=max(0, self.expires - max(0, passed)))

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object, with all fields but a guest that is not there."""
        body = {item.name: getattr(self, item.name) for item in fields(self) if item.name != "guest"}
        guest = {"guest": self.guest._asdict()} if self.guest else {}
        return {**body, "reason": strict.printable(self.reason, MAX_REASON) if self.reason else "", **guest}

    @classmethod
    def from_json(cls, value: Any, key: str = "share") -> ShareUse:
        """Read and check the JSON; raises `FieldError`. Fields of a newer version are ignored."""
        body = strict.an_object(value, key)
        return cls(
            uuid=strict.required(body, "uuid", read_uuid),
            allocated=strict.required(body, "allocated", _milli),
            effective=strict.required(body, "effective", _milli),
            guaranteed=strict.required(body, "guaranteed", _time),
            borrowed=strict.required(body, "borrowed", _time),
            idle=strict.required(body, "idle", _time),
            overrun=strict.required(body, "overrun", _time),
            switching=strict.required(body, "switching", _time),
            waited=strict.required(body, "waited", _time),
            throttled=strict.required(body, "throttled", _time),
            lost=strict.required(body, "lost", _time),
            balance=strict.required(body, "balance", _time),
            cap=strict.required(body, "cap", _time),
            expires=strict.optional(body, "expires", _time),
            sharing=strict.required(body, "sharing", strict.integer(0, MAX_SHARES - 1)),
            period=strict.required(body, "period", strict.integer(1, strict.MAX_GENERATION)),
            busy=strict.optional(body, "busy", _part),
            reason=strict.required(body, "reason", _reason),
            memory_used=strict.optional(body, "memory_used", _time),
            memory_limit=strict.optional(body, "memory_limit", _time),
            guest=strict.optional(body, "guest", GuestUse.from_json),
        )


class ShareRates(NamedTuple):
    """The activity of a share, as parts of the time it covers: none below 0, the first four together at most 1."""

    guaranteed: float = 0.0
    """It ran on what it earns, an overrun included: that is paid back from it."""
    borrowed: float = 0.0
    """It ran on its bank."""
    idle: float = 0.0
    """It ran on time that no other share claimed."""
    waiting: float = 0.0
    """It had work and did not run."""
    throttled: float = 0.0
    """The part of ``waiting`` in which it had nothing left to spend."""

    @property
    def running(self) -> float:
        """It had the GPU."""
        return self.guaranteed + self.borrowed + self.idle


_MONOTONIC = ("borrowed", "idle", "switching", "waited", "throttled", "lost")
"""Totals that never fall. The other two fall a little when the cost of passing the GPU on is refunded."""


def rates(before: ShareUse | None, after: ShareUse, passed: int) -> ShareRates | None:
    """Return the rates over the ``passed`` microseconds between the two; ``None`` if they are not known.

    Totals that fell began anew, after a restart of the node or for a new share of the same GPU: then they are the use
    since that moment, which is all that is known. As clocks differ, more use than fits into the time is scaled to it.
    """
    if before is None or passed <= 0:
        return None
    again = any(getattr(after, name) < getattr(before, name) for name in _MONOTONIC)
    grown = {
        name: max(0, getattr(after, name) - (0 if again else getattr(before, name)))
        for name in ("guaranteed", "borrowed", "idle", "overrun", "waited", "throttled")
    }
    own = grown["guaranteed"] + grown["overrun"]
    whole = max(passed, own + grown["borrowed"] + grown["idle"] + grown["waited"])
    return ShareRates(
        guaranteed=own / whole,
        borrowed=grown["borrowed"] / whole,
        idle=grown["idle"] / whole,
        waiting=grown["waited"] / whole,
        throttled=min(grown["throttled"], grown["waited"]) / whole,
    )


def read_shares(value: Any, key: str) -> Mapping[str, ShareUse]:
    """Shares by uuid, as `Sample.to_json` writes them; raises `FieldError`."""
    found = {uuid: ShareUse.from_json(item, key) for uuid, item in strict.an_object(value, key).items()}
    for uuid, share in found.items():
        if share.uuid != uuid:
            raise strict.FieldError(f"{key!r} has a share under the uuid of another GPU.", key)
    return found


def _part(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1:
        raise strict.FieldError(f"{key!r} must be a number from 0 to 1.", key)
    return float(value)


def _reason(value: Any, key: str) -> str:
    return strict.label(MAX_REASON)(value, key) if value != "" else ""
