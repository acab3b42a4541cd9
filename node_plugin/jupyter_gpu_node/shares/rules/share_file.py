"""The file of one share: what it was given, what it has now, how it uses that, and why that changed. Pure.

There are two copies. The node's own copy has the deposits of the bank: the next server continues from it. The pod's
copy is to show: a `ShareUse` with the time of writing. Other times are microseconds before or after that time, which
alone is by the wall clock: a monotonic clock means nothing after the next boot, nor on another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.quantity import MILLI_PER_GPU
from jupyter_gpu.model.share import ShareUse
from jupyter_gpu_node.shares.rules.turns.bank import Deposit
from jupyter_gpu_node.shares.rules.turns.elastic import PreviousState
from jupyter_gpu_node.shares.rules.turns.ledger import Debt

MAX_BYTES = 256 * 1024
MAX_DEPOSITS = 4096
"""More are merged: many small deposits are worth no more than a few."""
MAX_TIME = 2**53 - 1
KEEP = 1_000_000
"""Microseconds between two writes of an own copy, which is on a disk, while no savings are spent."""
SMALL = 100_000
"""Microseconds of a debt that are not worth a write."""


ShareKey = tuple[str, str]
"""GPU and pod."""


@dataclass(frozen=True, slots=True)
class ShareFile:
    """The contents of a share's file."""

    share: ShareUse
    """``expires`` counts from the moment of writing."""
    use: float = 0.0
    """Part of its earnings that it used lately; above 1 with its bank or idle time."""
    written: int = 0
    """Milliseconds since 1970."""
    deposits: tuple[tuple[int, int], ...] | None = None
    """Amount and age of each, oldest first; None in the copy for the pod."""
    owes: tuple[int, int] = (0, 0)
    """Its debt, and the milli by which that becomes less; not in the copy for the pod."""

    @property
    def steady(self) -> ShareFile:
        """Without what passing time alone changes: two files of an idle share differ in nothing else."""
        return ShareFile(replace(self.share, expires=None, lost=0), self.use, owes=self.owes)


@dataclass(frozen=True, slots=True)
class Savings:
    """The part of the own copy that the next server takes over."""

    written: int
    deposits: tuple[tuple[int, int], ...]
    previous: PreviousState | None = None
    """The time it earned; None: not recorded."""
    owes: tuple[int, int] = (0, 0)
    """Its debt when this was written, and the milli by which that becomes less."""


def is_due(file: ShareFile, now: int, kept: ShareFile | None, at: int) -> bool:
    """Tell whether the own copy is to be rewritten: ``kept`` is its content since ``at``; both files are steady.

    At once if savings were spent: the server after this one must not give them a second time; and if much more is owed.
    Later if anything is new, or there are savings: those of an older copy may have expired by the time of the next
    server.
    """
    if kept is None or file.share.balance < kept.share.balance or file.owes[0] > kept.owes[0] + SMALL:
        return True
    return (file != kept or file.share.balance > 0) and now - at >= KEEP


def saved(deposits: Iterable[Deposit], now: int) -> tuple[tuple[int, int], ...]:
    """Return amounts and ages at ``now``, at most `MAX_DEPOSITS`: merged neighbours have the older one's age."""
    found = [(one.amount, max(0, now - one.at)) for one in deposits]
    while len(found) > MAX_DEPOSITS:
        pairs = zip(found[::2], found[1::2], strict=False)
        found = [(a + b, age) for (a, age), (b, _) in pairs] + ([found[-1]] if len(found) % 2 else [])
    return tuple(found)


def restored(savings: Savings, now: int, wall: int) -> tuple[Deposit, ...]:
    """Return the deposits as they are at ``now``, which is ``wall`` milliseconds since 1970.

    If the wall clock went back, their age is unknown, and all are lost: no deposit may become younger.
    """
    passed = (wall - savings.written) * 1000
    if passed < 0:
        return ()
    return tuple(Deposit(amount, now - age - passed) for amount, age in savings.deposits if amount)


def owed(savings: Savings, wall: int) -> int:
    """Return what is owed still at ``wall``: as much less as the share would have paid, had it been open meanwhile."""
    amount, milli = savings.owes
    return Debt(amount, savings.written * 1000, milli).owed(wall * 1000)


def encode_debt(amount: int, milli: int, written: int) -> bytes:
    """Return the text of the own copy of a closed share: nothing is left of it but what it owes."""
    return strict.dumps({"written": written, "owes": [amount, milli]}).encode()


def encode(file: ShareFile, *, public: bool) -> bytes:
    """Return the text of the file; ``public``: without the deposits."""
    body: dict[str, Any] = {**file.share.to_json(), "use": round(file.use, 3), "written": file.written}
    if not public and file.deposits is not None:
        body["deposits"] = file.deposits
    if not public and file.owes[0]:
        body["owes"] = file.owes
    return strict.dumps(body).encode()


def decode(text: bytes) -> ShareFile:
    """Parse the text of either copy; raises `FieldError`."""
    body = strict.an_object(strict.loads(text, MAX_BYTES), "The file of a share")
    return ShareFile(
        share=ShareUse.from_json(body),
        use=strict.required(body, "use", _part),
        written=strict.required(body, "written", _time),
        deposits=strict.optional(body, "deposits", _deposits),
        owes=strict.optional(body, "owes", _owes) or (0, 0),
    )


def decode_savings(text: bytes) -> Savings:
    """Parse the text of an own copy; raises `FieldError`.

    Servers of other versions may show users other fields: no bank may be lost because of that.
    """
    body = strict.an_object(strict.loads(text, MAX_BYTES), "The file of a share")
    return Savings(
        written=strict.required(body, "written", _time),
        deposits=strict.optional(body, "deposits", _deposits) or (),
        previous=_previous(body),
        owes=strict.optional(body, "owes", _owes) or (0, 0),
    )


def decode_debt(text: bytes) -> Savings | None:
    """Return the debt alone from an own copy whose other fields may be bad; None: there is none that can be read.

    A bank that cannot be read is lost, and costs its share something. A debt that is lost would cost the others.
    """
    try:
        body = strict.an_object(strict.loads(text, MAX_BYTES), "The file of a share")
        owes = strict.required(body, "owes", _owes)
        return Savings(strict.required(body, "written", _time), (), owes=owes) if owes[0] else None
    except strict.FieldError:
        return None


def _previous(body: Mapping[str, Any]) -> PreviousState | None:
    try:
        allocated, effective = (strict.required(body, key, _milli) for key in ("allocated", "effective"))
        reason = strict.label(512)(body["reason"], "reason") if body.get("reason") else ""
        return PreviousState(allocated, effective, reason)
    except strict.FieldError:
        return None


_milli = strict.integer(1, MILLI_PER_GPU)
_time = strict.integer(0, MAX_TIME)


def _part(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e6:
        raise strict.FieldError(f"{key!r} must be a number from 0 to 1000000.", key)
    return float(value)


def _deposit(value: Any, key: str) -> tuple[int, int]:
    found = strict.list_of(_time, 2)(value, key)
    if len(found) != 2:
        raise strict.FieldError(f"{key!r} must be an amount and its age.", key)
    return found[0], found[1]


def _owes(value: Any, key: str) -> tuple[int, int]:
    amount, milli = _deposit(value, key)
    return amount, _milli(milli, key)


_deposits = strict.list_of(_deposit, MAX_DEPOSITS)
