"""Settings of a program from one JSON file, checked against a dataclass.

The dataclass is the schema: its field ``lease_seconds: float = 15.0`` is the key ``leaseSeconds`` of the file. An
unknown key is refused, so that a misspelt one is not silently ignored; a field without a default is required.
Understood types: ``bool``, ``int``, ``float``, ``str``, ``Path``, ``Literal["a", "b"]``, ``tuple[T, ...]`` (a list),
``Mapping[str, T]``, another such dataclass, and ``T | None``::

    @dataclass(frozen=True)
    class Settings:
        port: int = bounded(8443, least=1, most=65535)
        names: tuple[str, ...] = ()

    settings = read(Path("settings.json"), Settings)     # SettingsError: a sentence that names the file and the key
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jupyter_gpu.model import strict

T = TypeVar("T")
Reader = Callable[[Any, str], Any]

MAX_BYTES = 1024 * 1024
_MAX_ITEMS = 10_000
_MAX_TEXT = 4096


class SettingsError(Exception):
    """The settings can't be used; the text is a sentence that says which and why."""


def bounded(default: Any = dataclasses.MISSING, *, least: float | None = None, most: float | None = None) -> Any:
    """Return a dataclass field that must be a number from ``least`` to ``most``; the default is not checked."""
    return dataclasses.field(default=default, metadata={"least": least, "most": most})


def checked(read: Reader, default: Any = dataclasses.MISSING) -> Any:
    """Return a dataclass field that ``read(value, key)`` reads from JSON; ``read`` raises `FieldError`."""
    return dataclasses.field(default=default, metadata={"read": read})


def read(path: Path, cls: type[T]) -> T:
    """Read the settings in the file ``path``; raises `SettingsError`."""
    try:
        with path.open("rb") as file:
            text = file.read(MAX_BYTES + 1)
        return parse(strict.loads(text, MAX_BYTES), cls)
    except OSError as error:
        raise SettingsError(f"The settings file {path} cannot be read: {error.strerror or error}.") from None
    except (strict.FieldError, SettingsError) as error:
        raise SettingsError(f"The settings in {path} cannot be used: {error}") from None


def parse(value: Any, cls: type[T]) -> T:
    """Read the settings of a JSON value; raises `SettingsError`."""
    try:
        return _read_dataclass(value, "", cls)
    except strict.FieldError as error:
        raise SettingsError(str(error)) from None


def camel(name: str) -> str:
    """Return a field's name as the file spells it: ``lease_seconds`` → ``leaseSeconds``."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _read_dataclass(value: Any, key: str, cls: type[T]) -> T:
    assert dataclasses.is_dataclass(cls)
    body = strict.an_object(value, repr(key) if key else "The whole")
    fields = {camel(field.name): field for field in dataclasses.fields(cls)}
    for name in body:
        if name not in fields:
            where = f" in {key!r}" if key else ""
            known = ", ".join(sorted(fields))
            raise strict.FieldError(f"{strict.printable(name, 60)!r}{where} is not known; known are {known}.", name)
    hints = get_type_hints(cls)
    found: dict[str, Any] = {}
    for name, field in fields.items():
        inner = f"{key}.{name}" if key else name
        if name in body:
            found[field.name] = _reader(hints[field.name], field.metadata)(body[name], inner)
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            raise strict.FieldError(f"{inner!r} is missing.", inner)
    try:
        return cls(**found)
    except ValueError as error:  # a check of several fields together, in __post_init__
        raise strict.FieldError(str(error), key) from None


def _reader(hint: Any, metadata: Mapping[str, Any]) -> Reader:
    """Return the reader of one type."""
    if "read" in metadata:
        chosen: Reader = metadata["read"]
        return chosen
    origin, args = get_origin(hint), get_args(hint)
    if origin in (Union, UnionType):
        return _or_null(_reader(next(arg for arg in args if arg is not NoneType), metadata))
    if origin is Literal:
        return strict.one_of(*args)
    if origin is tuple:
        return strict.list_of(_reader(args[0], metadata), _MAX_ITEMS)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _mapping(_reader(args[1], metadata))
    if dataclasses.is_dataclass(hint):
        return lambda value, key: _read_dataclass(value, key, hint)  # type: ignore[arg-type]
    return _plain(hint, metadata)


def _plain(hint: Any, metadata: Mapping[str, Any]) -> Reader:
    """Return the reader of a type that has no parts."""
    if hint is bool:
        return strict.boolean
    if hint is str:
        return _text
    if hint is Path:
        return lambda value, key: Path(strict.text(_MAX_TEXT)(value, key))
    if hint in (int, float):
        return _number(hint, metadata.get("least"), metadata.get("most"))
    raise TypeError(f"settings of type {hint} are not understood")


def _text(value: Any, key: str) -> str:
    """Read text that may be empty."""
    return "" if value == "" else strict.text(_MAX_TEXT)(value, key)


def _number(kind: type[int] | type[float], least: float | None, most: float | None) -> Reader:
    def read_number(value: Any, key: str) -> float:
        wanted = (int, float) if kind is float else (int,)
        low, high = (-math.inf if least is None else least), (math.inf if most is None else most)
        if isinstance(value, bool) or not isinstance(value, wanted) or not low <= value <= high:
            noun = "whole number" if kind is int else "number"
            bounds = (("at least", least), ("at most", most))
            limits = " and ".join(f"{words} {bound:g}" for words, bound in bounds if bound is not None)
            raise strict.FieldError(f"{key!r} must be a {noun}{' of ' if limits else ''}{limits}.", key)
        return kind(value)

    return read_number


def _or_null(read_value: Reader) -> Reader:
    return lambda value, key: None if value is None else read_value(value, key)


def _mapping(read_value: Reader) -> Reader:
    def read_items(value: Any, key: str) -> Mapping[str, Any]:
        body = strict.an_object(value, repr(key))
        if len(body) > _MAX_ITEMS:
            raise strict.FieldError(f"{key!r} has more than {_MAX_ITEMS:,} entries.", key)
        return {name: read_value(item, f"{key}.{name}") for name, item in body.items()}

    return read_items
