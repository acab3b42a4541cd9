"""The messages between the gate in a program and the arbiter's server: 32 bytes each, over a Unix socket. Pure.

``u8 version = 1``, ``u8 kind``, ``u16 0``, ``u32 0``, ``u64 a``, ``u64 b``, ``u64 c``, little-endian; what a kind does
not use is 0 and must be. ``gate/connection/protocol.h`` is the twin of this file.

Messages of the two ends cross. So that a grant that extends is never taken for a new lease, nor an old answer for a new
one, each lease that one connection is given has a number, counted from 1: an end that has given number n back ignores
whatever else comes of n.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Generic, NamedTuple, TypeVar

VERSION = 1
SIZE = 32
MOST = 2**64 - 1
FOREVER = MOST
"""The time of a grant that does not end."""
NO_LIMIT = MOST
"""The limit of a share that has none."""

ASK, DONE, NEED = 1, 2, 3
GRANT, REVOKE, MEMORY = 16, 17, 18

_FORM = Struct("<BBHIQQQ")
M = TypeVar("M")


class Malformed(ValueError):
    """An error for bytes that are no message; says why. Nothing more is read from that connection."""


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
            return _FORM.pack(VERSION, GRANT, 0, 0, time, number, 1 if once else 3 if single else 2 * ahead)
        case Revoke(number):
            return _FORM.pack(VERSION, REVOKE, 0, 0, number, 0, 0)
        case Memory(size, limit, used):
            return _FORM.pack(VERSION, MEMORY, 0, 0, size, limit, used)
        case Ask(want, keeps, stuck):
            return _FORM.pack(VERSION, ASK, 0, 0, want, 3 if stuck else int(keeps), 0)
        case Done(want, measured, number):
            return _FORM.pack(VERSION, DONE, 0, 0, 0 if want is None else want + 1, measured, number)
    return _FORM.pack(VERSION, NEED, 0, 0, message.size, message.steps + 2 * message.ahead + 4 * message.single, 0)


def _ask(a: int, b: int, c: int) -> Ask:
    _unused(b >> 2, c)
    _unused(b == 2, 0)
    return Ask(a, b != 0, b == 3)


def _done(a: int, b: int, c: int) -> Done:
    return Done(a - 1 if a else None, b, c)


def _need(a: int, b: int, c: int) -> Need:
    _unused(b >> 3, c)
    return Need(a, b & 1 == 1, b & 2 == 2, b & 4 == 4)


def _grant(a: int, b: int, c: int) -> Grant:
    _unused(c >> 2, 0)
    return Grant(a, _numbered(b), c == 1, c == 2, c == 3)


def _revoke(a: int, b: int, c: int) -> Revoke:
    _unused(b, c)
    return Revoke(_numbered(a))


def _numbered(number: int) -> int:
    if not number:
        raise Malformed("it is about lease 0, and they are counted from 1")
    return number


def _unused(one: int, other: int) -> None:
    if one or other:
        raise Malformed("a field that it does not use is not 0")


_FROM_CLIENT: Mapping[int, Callable[[int, int, int], FromClient]] = {ASK: _ask, DONE: _done, NEED: _need}
_FROM_SERVER: Mapping[int, Callable[[int, int, int], FromServer]] = {GRANT: _grant, REVOKE: _revoke, MEMORY: Memory}


class Stream(Generic[M]):
    """A parser that cuts the bytes from one end into messages."""

    def __init__(self, readers: Mapping[int, Callable[[int, int, int], M]]) -> None:
        self._readers = readers
        self.rest = b""
        """The part of a message that is not complete yet."""

    def feed(self, data: bytes) -> list[M]:
        """Return all messages that are complete now; raises `Malformed`."""
        if self.rest:
            data = self.rest + data
        extra = len(data) % SIZE
        self.rest = data[-extra:] if extra else b""
        return [self._message(*fields) for fields in _FORM.iter_unpack(data[:-extra] if extra else data)]

    def _message(self, version: int, kind: int, zero: int, nought: int, a: int, b: int, c: int) -> M:
        if version != VERSION:
            raise Malformed(f"it is of version {version}, and {VERSION} is spoken here")
        reader = self._readers.get(kind)
        if reader is None:
            raise Malformed(f"it is of kind {kind}, which cannot come from that end")
        _unused(zero, nought)
        return reader(a, b, c)


def from_client() -> Stream[FromClient]:
    """Return a stream of the messages of one client."""
    return Stream(_FROM_CLIENT)


def from_server() -> Stream[FromServer]:
    """Return a stream of the server's messages to one client."""
    return Stream(_FROM_SERVER)
