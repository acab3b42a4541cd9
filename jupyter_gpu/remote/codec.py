"""Values of a notebook's namespace as bytes, and back into the namespace of another process.

Like cloudpickle, but functions of the notebook are functions of the namespace that they arrive in: they read and assign
its globals. Plain cloudpickle gives the functions of each message globals of their own, and so wrong results without an
error. Names that share objects are pickled together, so that they share them there; all others by themselves, so that
one that cannot be pickled or loaded loses no other. Buffers of arrays are neither copied nor read-only where they
arrive.

Both processes belong to one user: what is loaded can run any code.
"""

from __future__ import annotations

import io
import pickle
import sys
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType
from typing import Any

import cloudpickle

from jupyter_gpu.remote.errors import CannotSend
from jupyter_gpu.remote.rules import names, shipping
from jupyter_gpu.remote.rules.names import CellNames
from jupyter_gpu.remote.unusable import sticky_code

Namespace = dict[str, Any]

SEPARATE = 16 * 1024
"""Bytes from which a buffer is sent beside the pickle."""
QUICK = 1024**2
"""Bytes of a pickle, without buffers, up to which it is looked for changes in place after a cell."""
NEVER_CHANGED = (str, bytes, frozenset)
"""Types of large values that a cell cannot change."""
MOST_OBJECTS = 100_000
"""Values of more objects are taken to share some with every other value."""
_NEVER_SHARED = (
    *(str, bytes, tuple, frozenset, type, FunctionType, BuiltinFunctionType, ModuleType, CodeType),
    *(property, staticmethod, classmethod, pickle.PickleBuffer),
)
"""Types whose values cannot be changed, or of which nobody keeps one alone."""


class TooLarge(Exception):
    """The error of a value that has more bytes than was allowed."""


@dataclass(frozen=True)
class Chunk:
    """Names that are pickled together, and so share the objects that they shared."""

    names: tuple[str, ...]
    stream: bytes | bytearray | memoryview
    """One pickle for each name; the later ones refer to objects of the earlier ones."""
    buffers: tuple[Any, ...] = ()
    """Buffers beside the pickles, in their order."""


class Elsewhere:
    """A value in the namespace of a worker, by its name there: it arrives as that value."""

    name: str

    def __reduce__(self) -> tuple[Any, ...]:
        """Return what stands for it."""
        return here, ("value", self.name)


@dataclass(frozen=True)
class Pickled:
    """One or more names, pickled."""

    chunk: Chunk
    uses: CellNames
    """Global names that functions in it use."""
    objects: Mapping[int, object] | None
    """Objects that another value may share, by identity; None if they are too many."""
    elsewhere: Mapping[str, Elsewhere]
    """The values of workers in it, by name."""

    @property
    def size(self) -> int:
        """Return the bytes."""
        return len(self.chunk.stream) + sum(memoryview(buffer).nbytes for buffer in self.chunk.buffers)

    @property
    def quick(self) -> bool:
        """Tell whether pickling it again costs little, however large its arrays are."""
        return len(self.chunk.stream) <= QUICK

    @cached_property
    def fingerprint(self) -> int:
        """Return a number that is another one after the value was changed: a CRC-32 of its bytes, and their amount."""
        crc = zlib.crc32(self.chunk.stream)
        for buffer in self.chunk.buffers:
            crc = zlib.crc32(buffer, crc)
        return (self.size << 32) | crc


@dataclass(frozen=True)
class Measured:
    """The names of a namespace, each pickled by itself."""

    pickled: Mapping[str, Pickled]
    failed: Mapping[str, str]
    """Reasons by name."""
    large: frozenset[str]
    """Names above the limit."""
    sticky: int | None = None
    """The code of an error of CUDA's after which this process can use no GPU any more."""

    @property
    def fingerprints(self) -> dict[str, int]:
        """Return the fingerprint of each name that was pickled."""
        return {name: value.fingerprint for name, value in self.pickled.items()}

    @property
    def sizes(self) -> dict[str, int]:
        """Return the bytes of each name that was pickled."""
        return {name: value.size for name, value in self.pickled.items()}

    @property
    def uses(self) -> CellNames:
        """Return the global names that functions in the values use."""
        return reduce(names.joined, (value.uses for value in self.pickled.values()), CellNames())

    @property
    def elsewhere(self) -> dict[str, Elsewhere]:
        """Return the values of workers in what was pickled, by name."""
        return {name: one for value in self.pickled.values() for name, one in value.elsewhere.items()}

    @property
    def groups(self) -> list[tuple[str, ...]]:
        """Return the names in groups that share no object."""
        return shipping.groups({name: value.objects for name, value in self.pickled.items()})


def measure(
    space: Namespace,
    wanted: Iterable[str],
    *,
    limit: int | None = None,
    inline: int | None = None,
    host_copies: bool = False,
    follow: bool = True,
) -> Measured:
    """Pickle names of a namespace, each by itself, and then those that their functions use.

    Names that the namespace does not have are left out. A name with more than ``limit`` bytes, or more than
    ``inline`` beside its buffers, is not pickled to its end.
    ``host_copies`` sends arrays on a GPU as copies in host memory, else they fail.
    """
    done: dict[str, Pickled] = {}
    failed: dict[str, str] = {}
    large: set[str] = set()
    sticky: int | None = None
    todo = sorted(set(wanted) & space.keys())
    seen = set(todo)
    while todo:
        name = todo.pop()
        try:
            done[name] = pickled(space, (name,), limit=limit, inline=inline, host_copies=host_copies)
        except TooLarge:
            large.add(name)
        except Exception as error:  # whatever the value's own code raises
            failed[name] = reason(error)
            sticky = sticky or sticky_code(error)
        else:
            more = (done[name].uses.reads & space.keys()) - seen - shipping.OF_SHELL if follow else ()
            todo += sorted(more)
            seen.update(more)
    return Measured(done, failed, frozenset(large), sticky)


def pickled(
    space: Namespace,
    group: Sequence[str],
    *,
    limit: int | None = None,
    inline: int | None = None,
    host_copies: bool = False,
) -> Pickled:
    """Pickle names together; raises `TooLarge`, and whatever their values raise."""
    pickler = _Pickler(space, _Stream(limit, inline), host_copies)
    for name in group:
        pickler.dump(space[name])
    chunk = Chunk(tuple(group), pickler.file.getvalue(), tuple(pickler.buffers))
    made = Pickled(chunk, pickler.uses, pickler.objects(), pickler.elsewhere)
    pickler.release()
    return made


def chunks(space: Namespace, measured: Measured, send: Iterable[str], *, host_copies: bool = False) -> list[Chunk]:
    """Return names that were measured as chunks: those that share objects in one, the others as they were pickled.

    Raises what a value raises that can no longer be pickled.
    """
    chosen = set(send)
    found = []
    for names_together in measured.groups:
        group = tuple(name for name in names_together if name in chosen)
        if len(group) == 1:
            found.append(measured.pickled[group[0]].chunk)
        elif group:
            found.append(pickled(space, group, host_copies=host_copies).chunk)
    return found


def load(space: Namespace, received: Iterable[Chunk]) -> dict[str, str]:
    """Bind the names of all chunks in a namespace; return the reasons of those that could not be loaded.

    Of a chunk in which one fails, no name is bound.
    """
    found, failed = loaded(space, received)
    space.update(found)
    return failed


def loaded(
    space: Namespace, received: Iterable[Chunk], values: Mapping[str, Any] | None = None
) -> tuple[Namespace, dict[str, str]]:
    """Return the values of all chunks, made for a namespace but not bound there, and the reasons of the others.

    ``values``: those for `Elsewhere`, if not those of the namespace.
    """
    failed: dict[str, str] = {}
    found: Namespace = {}
    for chunk in received:
        try:
            unpickler = _Unpickler(space, chunk, space if values is None else values)
            found.update({name: unpickler.load() for name in chunk.names})
        except Exception as error:  # whatever the value's own code raises
            failed |= dict.fromkeys(chunk.names, reason(error))
    return found, failed


def frames(sent: Sequence[Chunk]) -> tuple[list[dict[str, Any]], list[Any]]:
    """Return a header of plain JSON values, and the bytes of chunks one after the other."""
    header = [{"names": list(chunk.names), "buffers": len(chunk.buffers)} for chunk in sent]
    return header, [part for chunk in sent for part in (chunk.stream, *chunk.buffers)]


def read_frames(header: Sequence[Mapping[str, Any]], parts: Sequence[Any]) -> list[Chunk]:
    """Return the chunks; raises ValueError if the parts are not those that the header names."""
    rest: Iterator[Any] = iter(parts)
    try:
        read = [
            Chunk(tuple(entry["names"]), next(rest), tuple(next(rest) for _ in range(entry["buffers"])))
            for entry in header
        ]
    except (StopIteration, RuntimeError, KeyError, TypeError):
        raise ValueError(f"a message of {len(parts)} parts does not have those of its header") from None
    if next(rest, None) is not None:
        raise ValueError(f"a message of {len(parts)} parts has more than its header says")
    return read


def reason(error: BaseException) -> str:
    """Return an error as a reason: its first line, with its type where that says more."""
    text = str(error).partition("\n")[0]
    if isinstance(error, pickle.PickleError | TypeError) and text:
        return text
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def here(*_: object) -> Any:
    """Stand for what our unpickler makes: a function of its namespace, an empty cell, or a value by its name."""
    raise pickle.UnpicklingError("it can be loaded by jupyter-gpu only")


def same(value: Any) -> Any:
    """Return the value: what an array on a GPU is pickled as a call of, with its copy in host memory."""
    return value


def fill(function: FunctionType, state: Any) -> None:
    """Set the state of a function that was just made, and the contents of its cells; keep the builtins it has."""
    setter, values, cells = state
    space = function.__globals__
    kept = {name: space[name] for name in ("__builtins__",) if name in space}
    setter(function, values)
    space.update(kept)
    for cell, content in cells:
        for value in content:
            cell.cell_contents = value


def _content(cell: CellType) -> tuple[Any, ...]:
    try:
        return (cell.cell_contents,)
    except ValueError:  # not assigned yet
        return ()


class _Stream(io.BytesIO):
    """Bytes up to two limits: all bytes, and those that are not in buffers beside them."""

    def __init__(self, limit: int | None, inline: int | None) -> None:
        super().__init__()
        self._limit = sys.maxsize if limit is None else limit
        self._inline = sys.maxsize if inline is None else inline

    def write(self, data: Any) -> int:
        """Write bytes; raises TooLarge."""
        size = memoryview(data).nbytes
        self._inline -= size
        self.take(size)
        return super().write(data)

    def take(self, size: int) -> None:
        """Count bytes; raises TooLarge."""
        self._limit -= size
        if min(self._limit, self._inline) < 0:
            raise TooLarge


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc] # it says nothing of types
    """Writes functions of its namespace without their globals, and notes which they use."""

    memo: Any  # of the C type, which typeshed does not say

    def __init__(self, space: Namespace, file: _Stream, host_copies: bool) -> None:
        self.file = file
        self.buffers: list[memoryview] = []
        self.uses = CellNames()
        self.elsewhere: dict[str, Elsewhere] = {}
        self._cells: set[int] = set()
        self._space = space
        self._host_copies = host_copies
        super().__init__(self.file, 5, self._buffer)

    def _buffer(self, buffer: pickle.PickleBuffer) -> bool:
        """Keep a large buffer out of the pickle; True writes it there."""
        with suppress(BufferError):  # not contiguous
            raw = buffer.raw()
            if raw.nbytes >= SEPARATE:
                self.file.take(raw.nbytes)
                self.buffers.append(raw)
                return False
        return True

    def reducer_override(self, obj: Any) -> Any:
        """Return how an object is pickled, where it is not as cloudpickle does it."""
        if isinstance(obj, io.TextIOWrapper) and obj is not sys.stdout and obj is not sys.stderr:
            raise CannotSend("it has an open file, whose content would be sent")
        if hasattr(type(obj), "__cuda_array_interface__") and not isinstance(obj, type) and _on_gpu(obj):
            return self._array(obj)
        if isinstance(obj, Elsewhere):
            self.elsewhere[obj.name] = obj
        if isinstance(obj, CellType) and id(obj) in self._cells:
            return here, ("cell",)
        made = super().reducer_override(obj)
        return self._function(obj, made) if isinstance(obj, FunctionType) and made is not NotImplemented else made

    def _function(self, function: FunctionType, made: Any) -> Any:
        """Return a function of which cloudpickle writes the code: with its own cells, which others may share."""
        maker, (code, base, *_), (state, slots), _, _, setter = made
        cells = function.__closure__ or ()
        self._cells.update(map(id, cells))
        slots["__closure__"] = None
        arguments: tuple[Any, ...] = (code, base, None, None, function.__closure__)
        if function.__globals__ is self._space:
            self.uses = names.joined(self.uses, names.of_function(function.__code__))
            slots["__globals__"] = {}
            maker, arguments = here, ("function", code, function.__closure__)
        return maker, arguments, (setter, (state, slots), [(cell, _content(cell)) for cell in cells]), None, None, fill

    def _array(self, array: Any) -> Any:
        if not self._host_copies:
            raise CannotSend("it is in the memory of a GPU")
        if type(array).__name__ == "Parameter":  # PyTorch's: it is pickled as its data
            return NotImplemented
        copy = next(
            (getattr(array, way) for way in ("get", "copy_to_host", "cpu", "__array__") if hasattr(array, way)), None
        )
        if copy is None:
            raise CannotSend(f"it is in the memory of a GPU, and {type(array).__name__} has no way to host memory")
        return same, (copy(),)

    def release(self) -> None:
        """Let go of what was written: it refers to itself, so it would hold large arrays until it is collected."""
        self.clear_memo()
        self.buffers.clear()
        self.file.close()

    def objects(self) -> Mapping[int, object] | None:
        """Return the objects written so far that can be changed, by identity."""
        memo = self.memo.copy()
        if len(memo) > MOST_OBJECTS:
            return None
        return {key: entry[1] for key, entry in memo.items() if _can_be_shared(entry[1])}


def _on_gpu(array: Any) -> bool:
    try:
        if getattr(array, "is_cuda", False) is True:  # PyTorch's: with a gradient, or sparse, it has no such interface
            return True
        return array.__cuda_array_interface__ is not None
    except Exception:  # PyTorch's tensors in host memory raise one of several
        return False


def _can_be_shared(value: Any) -> bool:
    """Tell whether a change of a value is seen by all that have it: unless it is equal to others by its content."""
    if isinstance(value, _NEVER_SHARED):
        return False
    if isinstance(value, CellType):  # what super() uses refers to the class
        return not any(isinstance(one, type) for one in _content(value))
    try:
        return hash(value) in (id(value), object.__hash__(value))
    except Exception:  # unhashable: lists, arrays
        return True


class _Unpickler(pickle.Unpickler):
    """Makes functions on its namespace, and buffers that can be written."""

    def __init__(self, space: Namespace, chunk: Chunk, values: Mapping[str, Any]) -> None:
        super().__init__(_Reader(chunk.stream), buffers=map(_writable, chunk.buffers))
        self._space, self._values = space, values

    def find_class(self, module: str, name: str, /) -> Any:
        """Return a global, or what stands for it here."""
        if (module, name) == (__name__, "here"):
            # A method would be kept with this, and hold all that was read.
            return partial(_made, self._space, self._values)
        return super().find_class(module, name)


def _made(space: Namespace, values: Mapping[str, Any], kind: str, *parts: Any) -> Any:
    """Return what `here` stands for in a namespace."""
    if kind == "function":
        code, closure = parts
        return FunctionType(code, space, None, None, closure)
    if kind == "cell":
        return CellType()
    try:
        return values[parts[0]]
    except KeyError:
        raise pickle.UnpicklingError(f"{parts[0]} is no longer there") from None


class _Reader:
    """Reads from memory, without a copy of it: `io.BytesIO` makes one of all that is not `bytes`."""

    def __init__(self, data: Any) -> None:
        self._data, self._at = memoryview(data).cast("B"), 0

    def read(self, size: int) -> bytes:
        """Return the next bytes."""
        return bytes(self._next(size))

    def readinto(self, room: memoryview) -> int:
        """Fill room with the next bytes; return their number."""
        part = self._next(len(room))
        room[: len(part)] = part
        return len(part)

    def readline(self) -> bytes:
        """Return the next bytes up to the end of a line: what old protocols need."""
        raise pickle.UnpicklingError("it is written in an old form")

    def _next(self, size: int) -> memoryview:
        part = self._data[self._at : self._at + size]
        self._at += len(part)
        return part


def _writable(buffer: Any) -> Any:
    return bytearray(buffer) if memoryview(buffer).readonly else buffer
