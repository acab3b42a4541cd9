"""A folder put first in the search path of a program's libraries (LD_LIBRARY_PATH, ld.so(8)). Pure."""

from __future__ import annotations

import re

VARIABLE = "LD_LIBRARY_PATH"
_SEPARATORS = re.compile(r"[:;]")


def can_be_named(path: str) -> bool:
    """Tell whether the variable can name a folder: colons and semicolons separate, and ``$`` begins a token of the
    loader.
    """
    return path.isprintable() and not set(path) & set(":;$")


def entries(value: str | None) -> list[str]:
    """Return the folders of the variable; an empty entry among others means the working directory."""
    return _SEPARATORS.split(value) if value else []


def joined(folder: str, before: str | None) -> str:
    """Return the variable with ``folder`` first; the user's own entries stay."""
    return ":".join([folder, *_others(folder, before)])


def without(folder: str, before: str | None) -> str | None:
    """Return the variable as it was before; None if nothing is left."""
    return ":".join(_others(folder, before)) or None


def _others(folder: str, before: str | None) -> list[str]:
    return [one for one in entries(before) if one != folder]
