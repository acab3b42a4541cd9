"""The items of a `gpu.map` as they were when it was called, though most of them are sent much later.

What cannot change is kept as it is. Of all else a pickle is kept, in memory up to some bytes and then in a file, which
has no name and ends with this process.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterable
from typing import Any, NamedTuple

from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote import calls
from jupyter_gpu.remote.codec import Chunk, Elsewhere, Namespace
from jupyter_gpu.remote.errors import CannotSend

MEMORY = 256 * 1024**2
"""Bytes of pickles in memory; with more, all are in the file."""
_CONSTANT = (type(None), bool, int, float, complex, str, bytes, range)
"""Types whose values nobody can change."""


class _Copy(NamedTuple):
    """The place of an item's pickle in the file, and the sizes of its parts."""

    at: int
    sizes: tuple[int, ...]


class Items:
    """The items. ``space``: the namespace of the notebook, whose functions they may have."""

    def __init__(self, space: Namespace, items: Iterable[Any]) -> None:
        """Raises `CannotSend` if there is no room for them."""
        self._space = space
        self._file = tempfile.SpooledTemporaryFile(MEMORY)  # noqa: SIM115 - `close` does
        self._kept: list[Any] = []
        self._elsewhere: dict[str, Elsewhere] = {}
        try:
            for item in items:
                self._kept.append(self._copied(item))
        except BaseException:
            self.close()
            raise

    def __len__(self) -> int:
        return len(self._kept)

    def __getitem__(self, index: int) -> Any:
        """Return an item as it was; one that cannot be pickled as it is now."""
        kept = self._kept[index]
        if not isinstance(kept, _Copy):
            return kept
        self._file.seek(kept.at)
        stream, *buffers = (self._file.read(size) for size in kept.sizes)
        return calls.restored(self._space, Chunk((calls.CALL,), stream, tuple(buffers)), self._elsewhere)

    def close(self) -> None:
        """Forget them."""
        self._file.close()

    def _copied(self, item: Any) -> Any:
        if type(item) in _CONSTANT:
            return item
        try:
            made = calls.pickled(self._space, item)
        except Exception:  # whatever its own code raises; its call says it
            return item
        chunk = made.chunk
        self._elsewhere.update(made.elsewhere)
        parts = (chunk.stream, *chunk.buffers)
        try:
            at = self._file.seek(0, os.SEEK_END)
            for part in parts:
                self._file.write(part)
        except OSError as error:
            raise CannotSend(
                gettext("There is no room to keep the items until they are sent: %1.", error.strerror or error)
            ) from None
        return _Copy(at, tuple(memoryview(part).nbytes for part in parts))
