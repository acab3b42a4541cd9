"""A program that copies by any function of the driver: ``python -m tests.gate.copying SYMBOL [COUNT:SIZE | wait]…``.

It prints "ready", then "done" after each command, when the GPU has finished; ``wait`` waits for a line of input.
``KINDS`` lists the functions, and whether their bytes come from the host or stay on the GPU, as far as the arguments
tell.
"""

import ctypes
import re
import sys
from collections.abc import Callable
from typing import Any

HOST, WITHIN, PACKED, WORD = "from or to the host", "on the GPU", "decompression", "a word"
KINDS = {
    **dict.fromkeys(
        ("cuMemcpy", "cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemcpyPeer", "cuMemcpyHtoA", "cuMemcpyAtoH", "cuMemcpyBatch",
         "cuMemcpy3DBatch", "cuMemcpyWithAttributes", "cuMemcpy3DWithAttributes", "cuMemPrefetch", "cuMemPrefetchBatch",
         "cuMemDiscardAndPrefetchBatch"), HOST),
    **dict.fromkeys(
        ("cuMemcpyDtoD", "cuMemcpyDtoA", "cuMemcpyAtoD", "cuMemcpyAtoA", "cuMemcpy2D", "cuMemcpy2DUnaligned",
         "cuMemcpy3D", "cuMemcpy3DPeer", "cuMemsetD8", "cuMemsetD16", "cuMemsetD32", "cuMemsetD2D8", "cuMemsetD2D16",
         "cuMemsetD2D32"), WITHIN),
    "cuMemBatchDecompress": PACKED,
    **dict.fromkeys(("cuStreamWriteValue32", "cuStreamWriteValue64", "cuStreamBatchMemOp"), WORD),
}  # fmt: skip
MOST = 1 << 26
"""Bytes of each piece of memory."""
PITCH = 1 << 16
LZ4 = 4


def base_of(symbol: str) -> str:
    """Return the name of a function without its suffixes."""
    return re.sub(r"(Async)?(_v2)?(_pt[sd][sz])?$", "", symbol)


def packed(size: int) -> bytes:
    """Return an LZ4 block that decompresses to this many bytes of "x", at least 20."""
    more, rest = divmod(size - 25, 255)
    return b"\x1fx\x01\x00" + b"\xff" * more + bytes([rest]) + b"\x50xxxxx"


class Volume(ctypes.Structure):
    """The descriptor of a flat array."""

    _fields_ = (("sizes", ctypes.c_size_t * 2), ("format", ctypes.c_int), ("channels", ctypes.c_uint))


class Copying:
    """A context with memory of each kind."""

    def __init__(self) -> None:
        from tests.gate.standin.driver import call, new, start

        start()
        self.call = call
        self.a, self.b = (int(new("cuMemAlloc_v2", MOST)) for _ in range(2))
        self.managed = int(new("cuMemAllocManaged", MOST, 1))
        self.array = int(new("cuArrayCreate_v2", ctypes.byref(Volume((MOST // 4, 1), 0x20, 1))))
        self.context, self.stream = int(new("cuCtxGetCurrent")), int(new("cuStreamCreate", 1))
        self._held = ctypes.create_string_buffer(MOST)
        self.host = ctypes.addressof(self._held)

    def _words(self, *words: int) -> Any:
        kept = (ctypes.c_uint64 * len(words))(*words)
        return ctypes.byref(kept)

    def _box(self, size: int) -> Any:
        return self._words(1, self.a, 0, 0, 0, 1, self.host, 0, 0, 0, size, 1, 1, 1)

    def _deep(self, size: int) -> Any:
        here, there = (0, 0, 0, 0, 2, 0, self.a, 0, 0, PITCH, 1), (0, 0, 0, 0, 2, 0, self.b, 0, 0, PITCH, 1)
        return self._words(*here, *there, min(size, PITCH), 1, max(1, size // PITCH))

    def _flat(self, size: int) -> Any:
        here, there = (0, 0, 2, 0, self.a, 0, PITCH), (0, 0, 2, 0, self.b, 0, PITCH)
        return self._words(*here, *there, min(size, PITCH), max(1, size // PITCH))

    def _batch(self, size: int) -> tuple[Any, ...]:
        how = self._words(1, 0, 0)
        return self._words(self.a), self._words(self.host), self._words(size), 1, how, self._words(0), 1

    def _places(self, size: int) -> tuple[Any, ...]:
        return self._words(self.managed), self._words(size), 1, self._words(1), self._words(0), 1, 0

    def _packed(self, size: int) -> Any:
        block = packed(size)
        self._source = ctypes.create_string_buffer(block)
        self.call("cuMemcpyHtoD_v2", self.b, ctypes.addressof(self._source), len(block))
        return self._words(len(block), size, self.a + MOST - 8, self.b, self.a, LZ4, 0, 0)

    def arguments(self, symbol: str, size: int) -> tuple[Any, ...]:
        """Return the arguments that copy this many bytes."""
        base, old = base_of(symbol), "_v2" not in symbol
        on = 0 if "_ptsz" in symbol else self.stream
        word = ((2, self.a, 7, 0, 0, 0),)
        known: dict[str, Callable[[], tuple[Any, ...]]] = {
            "cuMemcpy": lambda: (self.b, self.host, size),
            "cuMemcpyHtoD": lambda: (self.a, self.host, size),
            "cuMemcpyDtoH": lambda: (self.host, self.a, size),
            "cuMemcpyDtoD": lambda: (self.b, self.a, size),
            "cuMemcpyPeer": lambda: (self.b, self.context, self.host, self.context, size),
            "cuMemcpyHtoA": lambda: (self.array, 0, self.host, size),
            "cuMemcpyAtoH": lambda: (self.host, self.array, 0, size),
            "cuMemcpyDtoA": lambda: (self.array, 0, self.a, size),
            "cuMemcpyAtoD": lambda: (self.a, self.array, 0, size),
            "cuMemcpyAtoA": lambda: (self.array, 0, self.array, 0, size),
            "cuMemcpy2D": lambda: (self._flat(size),),
            "cuMemcpy2DUnaligned": lambda: (self._flat(size),),
            "cuMemcpy3D": lambda: (self._deep(size),),
            "cuMemcpy3DPeer": lambda: (self._deep(size),),
            "cuMemsetD8": lambda: (self.a, 7, size),
            "cuMemsetD16": lambda: (self.a, 7, size // 2),
            "cuMemsetD32": lambda: (self.a, 7, size // 4),
            "cuMemsetD2D8": lambda: (self.a, PITCH, 7, min(size, PITCH), max(1, size // PITCH)),
            "cuMemsetD2D16": lambda: (self.a, PITCH, 7, min(size, PITCH) // 2, max(1, size // PITCH)),
            "cuMemsetD2D32": lambda: (self.a, PITCH, 7, min(size, PITCH) // 4, max(1, size // PITCH)),
            "cuMemcpyBatch": lambda: (*self._batch(size), *((None,) if old else ())),
            "cuMemcpyWithAttributes": lambda: (self.a, self.host, size, self._words(1, 0, 0)),
            "cuMemcpy3DBatch": lambda: (1, self._box(size), *((None,) if old else ()), 0),
            "cuMemcpy3DWithAttributes": lambda: (self._box(size), 0),
            "cuMemPrefetch": lambda: (self.managed, size, *((0,) if old else (1, 0))),
            "cuMemPrefetchBatch": lambda: self._places(size),
            "cuMemDiscardAndPrefetchBatch": lambda: self._places(size),
            "cuMemBatchDecompress": lambda: (self._packed(size), 1, 0, None),
            "cuStreamWriteValue32": lambda: (on, self.a, 7, 0),
            "cuStreamWriteValue64": lambda: (on, self.a, 7, 0),
            "cuStreamBatchMemOp": lambda: (on, 1, self._words(*word[0]), 0),
        }
        return (*known[base](), *((on,) if "Async" in symbol else ()))


def main(symbol: str, *commands: str) -> None:
    """Carry out the commands."""
    copying = Copying()
    ready = False
    for command in commands:
        if command == "wait":
            sys.stdin.readline()
            continue
        times, size = map(int, command.split(":"))
        arguments = copying.arguments(symbol, size)
        if not ready:
            ready = True
            print("ready", flush=True)
        for _ in range(times):
            copying.call(symbol, *arguments)
        copying.call("cuCtxSynchronize")
        print("done", flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
