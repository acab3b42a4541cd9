"""The form of all messages between the gate in a program and its node: 32 bytes each, over a Unix socket. Pure.

``u8 version = 1``, ``u8 kind``, ``u16 0``, ``u32 0``, ``u64 a``, ``u64 b``, ``u64 c``, little-endian; what a kind does
not use is 0 and must be. ``gate/connection/message.h`` is the twin of this file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Generic, TypeVar

VERSION = 1
SIZE = 32
MOST = 2**64 - 1

_FORM = Struct("<BBHIQQQ")
M = TypeVar("M")


class Malformed(ValueError):
    """An error for bytes that are no message; says why. Nothing more is read from that connection."""


def pack(kind: int, a: int = 0, b: int = 0, c: int = 0) -> bytes:
    """Encode a message as 32 bytes; `struct.error` for a number that does not fit."""
    return _FORM.pack(VERSION, kind, 0, 0, a, b, c)


def unused(*fields: int) -> None:
    """Raise `Malformed` if a field is not 0."""
    if any(fields):
        raise Malformed("a field that it does not use is not 0")


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
        unused(zero, nought)
        return reader(a, b, c)
