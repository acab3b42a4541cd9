"""Strict reading of JSON from outside: every field checked, a size limit, plain sentences.

The functions raise `FieldError`, which names the field. Callers turn it into the error of their own input, as a bad
REST body and a bad annotation are mistakes of different people.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar

from .message import gettext

T = TypeVar("T")

MAX_GENERATION = 2**53 - 1
"""The largest integer that JavaScript keeps exact."""

MAX_TIME = 253402300799
"""The last second of the year 9999, the last that Python's dates know, in seconds since 1970."""

MAX_DEPTH = 32
"""Depth of nested lists and objects, so that values can be compared, copied and written without deep recursion."""

# Control characters, line separators and changes of the writing direction: they falsify a line in a terminal.
# Compiled at the first use, not at each start.
_UNSHOWN = r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"


class FieldError(ValueError):
    """``field`` is not acceptable; ``str(error)`` is a sentence that says why."""

    def __init__(self, message: str, field: str = "") -> None:
        super().__init__(message)
        self.field = field


class OversizeError(FieldError):
    """The text has more bytes than allowed."""


def loads(text: str | bytes, max_bytes: int) -> Any:
    """Parse JSON of at most ``max_bytes`` bytes of UTF-8; `dumps` can write all that this accepts.

    Refused beyond what JSON refuses: a key twice, NaN, Infinity and what is as large, half of a surrogate pair,
    more than `MAX_DEPTH` levels.
    """
    try:
        data = text.encode() if isinstance(text, str) else text
        if len(data) > max_bytes:
            raise OversizeError(
                gettext("The text has %1 bytes; at most %2 are accepted.", f"{len(data):,}", f"{max_bytes:,}")
            )
        value = json.loads(data.decode(), parse_constant=_finite, parse_float=_finite, object_pairs_hook=_unique)
        _check(value, MAX_DEPTH)
    except FieldError:
        raise
    except (ValueError, RecursionError) as error:  # UnicodeError and JSONDecodeError are ValueErrors
        raise FieldError(gettext("The text is not valid JSON: %1.", printable(str(error), 200))) from None
    return value


def dumps(value: Any) -> str:
    """Write compact JSON, as it is stored in annotations; always text that UTF-8 can carry.

    A file name that is no UTF-8 comes as surrogates (PEP 383): each becomes a question mark.
    """
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text if text.isascii() else text.encode(errors="replace").decode()


def printable(text: str, most: int) -> str:
    """Return ``text`` in a form that is safe in any line: without control characters, at most ``most``, never empty."""
    shown = re.sub(_UNSHOWN, "\N{REPLACEMENT CHARACTER}", text)
    return shown[: most - 1] + "…" if len(shown) > most else shown or "?"


def _finite(number: str) -> float:
    value = float(number)
    if not math.isfinite(value):
        raise FieldError(gettext("%1 is not a finite number.", number[:20]))
    return value


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in pairs:
        if key in found:
            raise FieldError(gettext("The field %1 is there twice.", repr(printable(key, 60))), printable(key, 60))
        found[key] = value
    return found


def _check(value: Any, levels: int) -> None:
    if isinstance(value, str):
        value.encode()  # raises UnicodeEncodeError for half of a surrogate pair
    elif isinstance(value, (dict, list)):
        if not levels:
            raise FieldError(gettext("The text is nested more than %1 levels deep.", MAX_DEPTH))
        for item in value:
            _check(item, levels - 1)
        if isinstance(value, dict):
            for item in value.values():
                _check(item, levels - 1)


def an_object(value: Any, what: str) -> Mapping[str, Any]:
    """Return ``value``, checked to be a JSON object."""
    if not isinstance(value, Mapping):
        raise FieldError(gettext("%1 must be a JSON object, such as {…}.", what), what)
    return value


def without_none(fields: Mapping[str, T | None]) -> dict[str, T]:
    """Return the fields that have a value: an absent field means ``None`` in the JSON of this project."""
    return {key: value for key, value in fields.items() if value is not None}


def no_unknown(fields: Mapping[str, Any], known: Iterable[str]) -> None:
    """Refuse unknown fields: a misspelt one must not be ignored silently."""
    allowed = sorted(known)
    for key in fields:
        if key not in allowed:
            shown = printable(key, 60)
            raise FieldError(gettext("The field %1 is unknown; known are %2.", repr(shown), ", ".join(allowed)), shown)


def unknown(fields: Mapping[str, Any], known: Iterable[str]) -> dict[str, Any]:
    """Return the fields of a newer version, kept so that rewriting a record loses nothing."""
    allowed = frozenset(known)
    return {key: value for key, value in fields.items() if key not in allowed}


def required(fields: Mapping[str, Any], key: str, read: Callable[[Any, str], T]) -> T:
    """Read ``fields[key]`` by ``read``; an error if it is missing."""
    if key not in fields:
        raise FieldError(gettext("The field %1 is missing.", repr(key)), key)
    return read(fields[key], key)


def optional(fields: Mapping[str, Any], key: str, read: Callable[[Any, str], T]) -> T | None:
    """Read ``fields[key]`` by ``read``; ``None`` if it is missing or null."""
    value = fields.get(key)
    return None if value is None else read(value, key)


def integer(least: int, most: int) -> Callable[[Any, str], int]:
    """Make a reader of an integer in ``least … most``; a bool or a float is none."""

    def read(value: Any, key: str) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise FieldError(gettext("%1 must be a whole number from %2 to %3.", repr(key), least, most), key)
        return value

    return read


read_time = integer(0, MAX_TIME)
"""Reader of a time in whole seconds since 1970."""


def text(most: int) -> Callable[[Any, str], str]:
    """Make a reader of a name: a string of 1 … ``most`` characters, none of them a control character."""

    def read(value: Any, key: str) -> str:
        if not isinstance(value, str) or not 0 < len(value) <= most or re.search(_UNSHOWN, value):
            raise FieldError(
                gettext("%1 must be text of 1 to %2 characters, without control characters.", repr(key), most), key
            )
        return value

    return read


def label(most: int) -> Callable[[Any, str], str]:
    """Make a reader of text that is only shown, such as a process's name: any string, made `printable`.

    An odd name must never make a record unreadable.
    """

    def read(value: Any, key: str) -> str:
        if not isinstance(value, str):
            raise FieldError(gettext("%1 must be text.", repr(key)), key)
        return printable(value, most)

    return read


def one_of(*choices: str) -> Callable[[Any, str], str]:
    """Make a reader of one of the given words."""

    def read(value: Any, key: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise FieldError(gettext("%1 must be one of %2.", repr(key), ", ".join(choices)), key)
        return value

    return read


def boolean(value: Any, key: str) -> bool:
    """Read ``true`` or ``false``."""
    if not isinstance(value, bool):
        raise FieldError(gettext("%1 must be true or false.", repr(key)), key)
    return value


def list_of(read: Callable[[Any, str], T], most: int) -> Callable[[Any, str], tuple[T, ...]]:
    """Make a reader of a list of at most ``most`` items, each read by ``read``."""

    def read_all(value: Any, key: str) -> tuple[T, ...]:
        if not isinstance(value, list) or len(value) > most:
            raise FieldError(gettext("%1 must be a list of at most %2 items.", repr(key), most), key)
        return tuple(read(item, f"{key}[{i}]") for i, item in enumerate(value))

    return read_all
