"""The file of one share: what it was given, what it has now, how it uses it, and why that changed. Pure.

There are two copies. The node's own has the deposits of the bank, and is where the next server begins; the pod's is
for showing. Times are microseconds before or after the moment of writing, which alone is told by the wall clock: a
monotonic clock means nothing to the next boot, nor to another machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.model import strict

from .bank import Deposit

MAX_BYTES = 256 * 1024
MAX_DEPOSITS = 4096
"""More are merged: a bank of many small ones is as good as one of few."""
MAX_TIME = 2**53 - 1
_REASON = 200


@dataclass(frozen=True, slots=True)
class ShareFile:
    """Its contents."""

    allocated: int
    """Milli that the share was given."""
    effective: int
    """Milli that it earns now."""
    use: float = 0.0
    """Of what it earns, the part that it used lately; above 1 with its bank or idle time."""
    bank: int = 0
    """Balance in microseconds."""
    expires: int | None = None
    """Microseconds after the writing at which the next deposit is lost."""
    sharing: int = 1
    """How many shares the GPU has."""
    reason: str = ""
    """Why the effective milli is what it is, in words for the user."""
    written: int = 0
    """Milliseconds since 1970."""
    deposits: tuple[tuple[int, int], ...] | None = None
    """Amount and age of each, oldest first; None in the copy for the pod."""


def saved(deposits: Iterable[Deposit], now: int) -> tuple[tuple[int, int], ...]:
    """Amounts and ages at ``now``, at most :data:`MAX_DEPOSITS`: of neighbours that are merged the age is the older."""
    found = [(one.amount, max(0, now - one.at)) for one in deposits]
    while len(found) > MAX_DEPOSITS:
        pairs = zip(found[::2], found[1::2], strict=False)
        found = [(a + b, age) for (a, age), (b, _) in pairs] + ([found[-1]] if len(found) % 2 else [])
    return tuple(found)


def restored(file: ShareFile, now: int, wall: int) -> tuple[Deposit, ...]:
    """The deposits as they are at ``now``, which is ``wall`` milliseconds since 1970.

    A wall clock that went back does not tell how old they are: then nothing is left, for nothing may become younger.
    """
    passed = (wall - file.written) * 1000
    if passed < 0 or file.deposits is None:
        return ()
    return tuple(Deposit(amount, now - age - passed) for amount, age in file.deposits if amount)


def encode(file: ShareFile, *, public: bool) -> bytes:
    """Text of the file; ``public``: without the deposits."""
    body: dict[str, Any] = {
        "allocated": file.allocated,
        "effective": file.effective,
        "use": round(file.use, 3),
        "bank": file.bank,
        "expires": file.expires,
        "sharing": file.sharing,
        "reason": strict.printable(file.reason, _REASON) if file.reason else "",
        "written": file.written,
    }
    if not public and file.deposits is not None:
        body["deposits"] = file.deposits
    return strict.dumps(body).encode()


def decode(text: bytes) -> ShareFile:
    """From the text of either copy; raises :class:`~jupyter_gpu.model.strict.FieldError`."""
    body = strict.an_object(strict.loads(text, MAX_BYTES), "The file of a share")
    time, milli = strict.integer(0, MAX_TIME), strict.integer(1, 1000)
    return ShareFile(
        allocated=strict.required(body, "allocated", milli),
        effective=strict.required(body, "effective", milli),
        use=strict.required(body, "use", _part),
        bank=strict.required(body, "bank", time),
        expires=strict.optional(body, "expires", time),
        sharing=strict.required(body, "sharing", strict.integer(1, 1000)),
        reason=_reason(body),
        written=strict.required(body, "written", time),
        deposits=strict.optional(body, "deposits", strict.list_of(_deposit, MAX_DEPOSITS)),
    )


def _reason(body: Mapping[str, Any]) -> str:
    found = strict.required(body, "reason", strict.label(_REASON))
    return found if body["reason"] else ""


def _part(value: Any, key: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value <= 1e6:
        raise strict.FieldError(f"{key!r} must be a number from 0 to 1000000.", key)
    return float(value)


def _deposit(value: Any, key: str) -> tuple[int, int]:
    found = strict.list_of(strict.integer(0, MAX_TIME), 2)(value, key)
    if len(found) != 2:
        raise strict.FieldError(f"{key!r} must be an amount and its age.", key)
    return found[0], found[1]
