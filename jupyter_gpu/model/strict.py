"""Strict reading of JSON from outside: every field checked, a size limit, plain sentences.

The functions raise :class:`FieldError`, which names the field; callers turn it into the error of their
own input (a bad REST body and a bad annotation are different faults of different people).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

T = TypeVar("T")

MAX_GENERATION = 2**53 - 1
"""The largest integer that JavaScript keeps exact."""


class FieldError(ValueError):
    """``field`` is not acceptable; ``str(error)`` is a sentence that says why."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class OversizeError(FieldError):
    """The text has more bytes than allowed."""


def loads(text: str | bytes, max_bytes: int) -> Any:
    """JSON value of ``text``; no NaN or Infinity, no key twice, at most ``max_bytes`` bytes of UTF-8."""
    try:
        data = text.encode() if isinstance(text, str) else text
        if len(data) > max_bytes:
            raise OversizeError(f"The text has {len(data):,} bytes; at most {max_bytes:,} are accepted.")
        return json.loads(data.decode(), parse_constant=_no_constant, object_pairs_hook=_unique)
    except FieldError:
        raise
    except (ValueError, RecursionError) as error:  # UnicodeError and JSONDecodeError are ValueErrors
        raise FieldError(f"The text is not valid JSON: {str(error)[:200]}.") from None


def dumps(value: Any) -> str:
    """Compact JSON, as it is stored in annotations."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def _no_constant(name: str) -> Any:
    raise FieldError(f"{name} is not a JSON number.")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise FieldError(f"The field {key!r} is there twice.", key)
        found[key] = value
    return found


def an_object(value: Any, what: str) -> Mapping[str, Any]:
    """``value``, checked to be a JSON object."""
    if not isinstance(value, Mapping):
        raise FieldError(f"{what} must be a JSON object, such as {{…}}.", what)
    return value


def no_unknown(fields: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse fields that nobody reads: a misspelt one must not be ignored in silence."""
    allowed = sorted(known)
    for key in fields:
        if key not in allowed:
            raise FieldError(f"The field {key[:60]!r} is unknown; known are {', '.join(allowed)}.", key[:60])


def unknown(fields: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """The fields of a newer version, kept so that rewriting a record loses nothing."""
    allowed = frozenset(known)
    return {key: value for key, value in fields.items() if key not in allowed}


def required(fields: Mapping[str, Any], key: str, read: Callable[[Any, str], T]) -> T:
    """``fields[key]`` read by ``read``; an error if it is missing."""
    if key not in fields:
        raise FieldError(f"The field {key!r} is missing.", key)
    return read(fields[key], key)


def optional(fields: Mapping[str, Any], key: str, read: Callable[[Any, str], T]) -> T | None:
    """``fields[key]`` read by ``read``; ``None`` if it is missing or null."""
    value = fields.get(key)
    return None if value is None else read(value, key)


def integer(least: int, most: int) -> Callable[[Any, str], int]:
    """Reader of an integer in ``least … most``; a bool or a float is none."""

    def read(value: Any, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise FieldError(f"{key!r} must be a whole number from {least} to {most}.", key)
        return value

    return read


def text(most: int) -> Callable[[Any, str], str]:
    """Reader of a string of 1 … ``most`` characters."""

    def read(value: Any, key: str) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= most:
            raise FieldError(f"{key!r} must be text of 1 to {most} characters.", key)
        return value

    return read


def one_of(*choices: str) -> Callable[[Any, str], str]:
    """Reader of one of the given words."""

    def read(value: Any, key: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise FieldError(f"{key!r} must be one of {', '.join(choices)}.", key)
        return value

    return read


def boolean(value: Any, key: str) -> bool:
    """Reader of ``true`` or ``false``."""
    if not isinstance(value, bool):
        raise FieldError(f"{key!r} must be true or false.", key)
    return value


def list_of(read: Callable[[Any, str], T], most: int) -> Callable[[Any, str], tuple[T, ...]]:
    """Reader of a list of at most ``most`` items, each read by ``read``."""

    def read_all(value: Any, key: str) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise FieldError(f"{key!r} must be a list of at most {most} items.", key)
        return tuple(read(item, f"{key}[{i}]") for i, item in enumerate(value))

    return read_all
