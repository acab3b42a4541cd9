"""Groups of a hub, and the limits that their properties say. Pure.

Properties are set in the hub's own administration page, one text for each key, and the hub accepts any. What is no
limit is reported; it never becomes a guess, and what was mirrored before stays.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.limits.amount import format_amount, parse_amount
from jupyter_gpu.model.limits.limit import MAX_SUBJECT
from jupyter_gpu.model.quantity import format_milli, parse_milli

PREFIX = "jupyter_gpu."


@dataclass(frozen=True, slots=True)
class Group:
    """One group of the hub."""

    name: str
    members: frozenset[str]
    properties: Mapping[str, Any] = field(default_factory=dict, hash=False)


@dataclass(frozen=True, slots=True)
class PropertyLimit:
    """The limit that a group's properties say."""

    spec: Mapping[str, Any]
    """Fields of the limit, without its subject; empty: they set none."""
    problem: str = ""
    """A sentence about what cannot be read; empty: all can be."""

    @property
    def readable(self) -> bool:
        """Whether the fields are all that was meant."""
        return not self.problem


def read_group(item: Any) -> Group | None:
    """Read a group as the hub's REST describes it; ``None``: no limit can name it. Raises `FieldError`."""
    body = strict.an_object(item, "group")
    users = body.get("users", [])
    if not isinstance(users, list) or not all(isinstance(name, str) and name for name in users):
        raise strict.FieldError("'users' must be a list of names.", "users")
    properties = strict.optional(body, "properties", strict.an_object) or {}
    try:
        return Group(strict.required(body, "name", strict.text(MAX_SUBJECT)), frozenset(users), properties)
    except strict.FieldError:
        return None


def read_user(item: Any) -> str | None:
    """Read a user's name as the hub's REST describes users; ``None``: no limit can name it. Raises `FieldError`."""
    body = strict.an_object(item, "user")
    try:
        return sys.intern(strict.required(body, "name", strict.text(MAX_SUBJECT)))  # limits and accounts have it, too
    except strict.FieldError:
        return None


def limit_of(group: Group) -> PropertyLimit:
    """Return the limit that the properties of a group say."""
    spec: dict[str, Any] = {}
    problems: list[str] = []
    for key, value in sorted(group.properties.items()):
        if not key.startswith(PREFIX):
            continue  # another program's
        field_name = key.removeprefix(PREFIX)
        try:
            spec[field_name] = _READERS[field_name](value, key)
        except KeyError:
            known = ", ".join(PROPERTIES)
            problems.append(f"The property {strict.printable(key, 60)!r} is not known; known are {known}.")
        except ValueError as error:
            problems.append(f"The property {key!r} can't be read: {error}")
    if not problems and {"max", "guaranteed"} <= spec.keys() and _more(spec["guaranteed"], spec["max"]):
        problems.append(f"{PREFIX}guaranteed is more than {PREFIX}max.")
    return PropertyLimit(spec, " ".join(problems))


def _more(guaranteed: str, most: str) -> bool:
    limit = parse_amount(most)
    return isinstance(limit, int) and parse_milli(guaranteed) > limit


def _whole(least: int, most: int) -> Callable[[Any, str], int]:
    def read(value: Any, key: str) -> int:
        text = _text(value, key)
        number = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else -1
        return strict.integer(least, most)(number, key)

    return read


def _text(value: Any, key: str) -> str:
    """Read text, or the number that a program may have written in its place."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        return str(value)
    if not isinstance(value, str):
        raise strict.FieldError(f'{key!r} must be text, such as "2".', key)
    return value.strip()


_READERS: Mapping[str, Callable[[Any, str], Any]] = {
    "max": lambda value, key: format_amount(parse_amount(_text(value, key))),
    "guaranteed": lambda value, key: format_milli(parse_milli(_text(value, key))),
    "priority": lambda value, key: {"max": _whole(0, 9)(value, key)},
    "weight": _whole(1, 1000),
}
"""Readers by the name of the property, which is that of the limit's field."""
PROPERTIES = tuple(PREFIX + name for name in _READERS)
"""The properties that are read."""
