"""Two namespaces in place of a notebook's and a worker's, and values as libraries have them."""

from __future__ import annotations

import pickle
from collections.abc import Iterable
from types import MappingProxyType
from typing import Any

from jupyter_gpu.remote import codec
from jupyter_gpu.remote.codec import Chunk, Namespace


def space(code: str = "", **values: Any) -> Namespace:
    """Return a namespace after some code, as that of a notebook."""
    made: Namespace = {"__name__": "__main__", **values}
    exec(code, made)
    return made


def sent(source: Namespace, wanted: Iterable[str], target: Namespace) -> dict[str, str]:
    """Send names as bytes, with all that their functions use; return the reasons of those that failed."""
    measured = codec.measure(source, wanted)
    made = codec.chunks(source, measured, measured.pickled)
    header, parts = codec.frames(made)
    received = codec.read_frames(header, [bytes(part) for part in parts])
    return {**measured.failed, **codec.load(target, received)}


class Grid:
    """An array as NumPy has it: its buffer is pickled beside the rest."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def __reduce_ex__(self, protocol: Any) -> tuple[Any, ...]:
        return Grid, (pickle.PickleBuffer(self.data),)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Grid) and bool(self.data == other.data)

    __hash__ = None  # type: ignore[assignment] # as that of an array


class OnGpu:
    """An array in the memory of a GPU, with a way to the host."""

    __cuda_array_interface__: Any = MappingProxyType({"shape": (1,)})

    def __init__(self, value: int = 7) -> None:
        self.value = value

    def get(self) -> int:
        """Return the content."""
        return self.value


def whole(chunks: Iterable[Chunk]) -> list[tuple[str, ...]]:
    """Return the names of each chunk."""
    return [chunk.names for chunk in chunks]
