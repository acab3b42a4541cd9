"""Reads from the gate which libraries have looked for GPUs in vain. Without the gate, none is known.

Libraries without a hook in `frameworks` call ``cuInit`` of the driver. The gate stands before it, answers that there is
no GPU, and records the caller.
"""

from __future__ import annotations

import functools
import os
import struct
from collections.abc import Callable
from typing import Any

from jupyter_gpu.kernel.rules.looks import read_looks, uses_runtime

_DRIVER = "libcuda.so.1"
_ROOM = 16 * 1024
"""Bytes of the longest report."""


class LookReader:
    """A reader of the looks of one process."""

    def __init__(self, find: Callable[[], Any] | None = None) -> None:
        self._find = find or _gate
        self._function: Any = None
        self._total = 0
        self._known: dict[str, int] = {}

    def new(self) -> tuple[str, ...]:
        """Return the paths of the libraries that have looked since the last call."""
        before = self._known
        return tuple(path for path, times in self._read().items() if times != before.get(path, 0))

    def kept(self) -> tuple[str, ...]:
        """Return the paths of the libraries that have looked and keep the answer. They are not new any more."""
        return tuple(path for path in self._read() if keeps_answer(path))

    def _read(self) -> dict[str, int]:
        self._function = self._function or self._find()
        if self._function is not None and (total := self._function(None, 0)) != self._total:
            import ctypes

            text = ctypes.create_string_buffer(_ROOM)
            self._function(text, _ROOM)
            self._total, self._known = total, read_looks(os.fsdecode(text.value))
        return self._known


def _gate() -> Any:
    """Return the gate's function; None if this process has not loaded the driver, or without a gate."""
    import ctypes  # kernels that never get here need not load it

    try:
        return ctypes.CDLL(_DRIVER, os.RTLD_NOLOAD | os.RTLD_LAZY).jupyter_gpu_looks
    except (OSError, AttributeError):
        return None


@functools.cache
def keeps_answer(path: str) -> bool:
    """Tell whether the library at ``path`` uses the CUDA runtime, which looks for GPUs only once."""
    return uses_runtime(path, section_names(path))


def section_names(path: str) -> bytes:
    """Return the names of the sections of a 64-bit ELF file, each with a 0 before and behind it; empty if unknown."""
    try:
        with open(path, "rb") as file:  # noqa: PTH123 - kernels load no pathlib for us
            header = file.read(64)
            if header[:6] != b"\x7fELF\x02\x01":
                return b""
            (table,) = struct.unpack_from("<Q", header, 0x28)
            entry, _, names = struct.unpack_from("<HHH", header, 0x3A)
            file.seek(table + names * entry)
            offset, size = struct.unpack_from("<QQ", file.read(64), 0x18)
            file.seek(offset)
            return file.read(min(size, 1 << 20))
    except (OSError, ValueError, struct.error):  # no such file, or not one of this kind
        return b""
