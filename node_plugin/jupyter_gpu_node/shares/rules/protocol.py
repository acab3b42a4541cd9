"""The messages between the gate in a program and the arbiter's server, over a Unix socket. Pure.

Their form is in `framing`; ``gate/connection/protocol.h`` is the twin of this file.

Messages of the two ends cross. So that a grant that extends is never taken for a new lease, nor an old answer for a new
one, each lease that one connection is given has a number, counted from 1: an end that has given number n back ignores
whatever else comes of n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

from .framing import MOST, Malformed, Stream, pack, unused

FOREVER = MOST
"""The time of a grant that does not end."""
NO_LIMIT = MOST
"""The limit of a share that has none."""

ASK, DONE, NEED = 1, 2, 3
GRANT, REVOKE, MEMORY = 16, 17, 18


class Ask(NamedTuple):
    """The message that the process has work."""

    want: int = 0
    """Microseconds that it will take as measured; 0: not known."""
    keeps: bool = False
    """Whether it still has the GPU: from the previous server, or asked back while its work takes longer."""
    stuck: bool = False
    """Whether that work ends only after a launch that waits at its gate: it needs a lease for one. With ``keeps``."""


class Done(NamedTuple):
    """The message that everything let through has ended. It gives the lease back, or only says the demand.

    Without a lease it reports work that waits for none: small copies from or to the host, and memory operations.
    """

    want: int | None = None
    """Microseconds still wanted, 0 for not known; None: no demand."""
    measured: int = 0
    """Microseconds of GPU work in this lease; without one, since this was said last."""
    number: int = 0
    """Number of the lease that is given back; 0: none in hand."""


class Need(NamedTuple):
    """The memory that the process needs in all; the first one of a connection says what it has already."""

    size: int
    """Bytes, now and wanted."""
    steps: bool = False
    """Whether this gate knows a lease for one launch (`Grant`): older ones reject it as no message."""
    ahead: bool = False
    """Whether it knows a lease in which it may be far ahead of the GPU."""
    single: bool = False
    """Whether it knows a lease in which nothing is queued behind what runs."""


class Grant(NamedTuple):
    """Permission to launch; the same number again extends."""

    time: int
    """Microseconds from the receipt; `FOREVER` for a whole GPU."""
    number: int
    once: bool = False
    """Whether it is for one launch: the gate lets no more through in this lease. For one that was asked back, with its
    number: one launch more, as what runs waits for it."""
    ahead: bool = False
    """Whether no other share would wait for what is queued: then as much as the gate likes. Not with ``once``."""
    single: bool = False
    """Whether nothing may be queued behind what runs: the share is a guest. Not with ``once`` or ``ahead``."""


class Revoke(NamedTuple):
    """The request to drain, then send `Done`."""

    number: int


class Memory(NamedTuple):
    """The answer to `Need`; comes also when the limit changes."""

    size: int
    """Bytes that this process may have in all."""
    limit: int
    """Limit of the share in bytes; `NO_LIMIT`: none."""
    used: int
    """Bytes used by all processes of the share."""


FromClient = Ask | Done | Need
FromServer = Grant | Revoke | Memory


def encode(message: FromClient | FromServer) -> bytes:
    """Encode a message as 32 bytes; `error` for a number that does not fit."""
    match message:
        case Grant(time, number, once, ahead, single):
            return pack(GRANT, time, number, 1 if once else 3 if single else 2 * ahead)
        case Revoke(number):
            return pack(REVOKE, number, 0, 0)
        case Memory(size, limit, used):
            return pack(MEMORY, size, limit, used)
        case Ask(want, keeps, stuck):
            return pack(ASK, want, 3 if stuck else int(keeps), 0)
        case Done(want, measured, number):
            return pack(DONE, 0 if want is None else want + 1, measured, number)
    return pack(NEED, message.size, message.steps + 2 * message.ahead + 4 * message.single, 0)


def _ask(a: int, b: int, c: int) -> Ask:
    unused(b >> 2, c)
    unused(b == 2, 0)
    return Ask(a, b != 0, b == 3)


def _done(a: int, b: int, c: int) -> Done:
    return Done(a - 1 if a else None, b, c)


def _need(a: int, b: int, c: int) -> Need:
    unused(b >> 3, c)
    return Need(a, b & 1 == 1, b & 2 == 2, b & 4 == 4)


def _grant(a: int, b: int, c: int) -> Grant:
    unused(c >> 2, 0)
    return Grant(a, _numbered(b), c == 1, c == 2, c == 3)


def _revoke(a: int, b: int, c: int) -> Revoke:
    unused(b, c)
    return Revoke(_numbered(a))


def _numbered(number: int) -> int:
    if not number:
        raise Malformed("it is about lease 0, and they are counted from 1")
    return number


_FROM_CLIENT: Mapping[int, Callable[[int, int, int], FromClient]] = {ASK: _ask, DONE: _done, NEED: _need}
_FROM_SERVER: Mapping[int, Callable[[int, int, int], FromServer]] = {GRANT: _grant, REVOKE: _revoke, MEMORY: Memory}


def from_client() -> Stream[FromClient]:
    """Return a stream of the messages of one client."""
    return Stream(_FROM_CLIENT)


def from_server() -> Stream[FromServer]:
    """Return a stream of the server's messages to one client."""
    return Stream(_FROM_SERVER)
