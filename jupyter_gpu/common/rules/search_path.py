"""One folder in front of the others in which a program's libraries are looked for (LD_LIBRARY_PATH, ld.so(8)). Pure."""

from __future__ import annotations

import re

VARIABLE = "LD_LIBRARY_PATH"
_SEPARATORS = re.compile(r"[:;]")


def can_be_named(path: str) -> bool:
    """Tell whether the variable can name it: these separate, and a dollar sign begins a name of the loader's own."""
    return path.isprintable() and not set(path) & set(":;$")


def entries(value: str | None) -> list[str]:
    """List the folders of the variable; an empty entry among others means the folder that a program is started in."""
    return _SEPARATORS.split(value) if value else []


def joined(folder: str, before: str | None) -> str:
    """Put ``folder`` first in the variable; whatever else the user has there stays."""
    return ":".join([folder, *_others(folder, before)])


def without(folder: str, before: str | None) -> str | None:
    """Return the variable as it was before; None if nothing is left."""
    return ":".join(_others(folder, before)) or None


def _others(folder: str, before: str | None) -> list[str]:
    return [one for one in entries(before) if one != folder]
