"""Short texts and numbers, packed: thousands of objects have one, and each is read rarely. Pure."""

from __future__ import annotations

import zlib

_WORDS = (
    b'"memory":"idleTimeout":"weight":"priority":"budget":{"gpuHours":"window":"Month"}"hours":"grace":"models":[{"model":'
    b'"guaranteed":"unlimited","from":{"max":"to":{"max":"2"}},{"by":"root","at":"2026-01-01T00:00:00Z",'
)
"""Words that packed texts often have, the most frequent last."""


def pack(content: bytes) -> bytes:
    """Return ``content`` in fewer bytes, mostly; the same bytes for the same content."""
    packer = zlib.compressobj(1, wbits=-zlib.MAX_WBITS, zdict=_WORDS)
    return packer.compress(content) + packer.flush()


def unpack(packed: bytes) -> bytes:
    """Return the content of what `pack` made."""
    return zlib.decompressobj(wbits=-zlib.MAX_WBITS, zdict=_WORDS).decompress(packed)
