"""One library in front of the others that a program is started with (LD_PRELOAD, ld.so(8)). Pure."""

from __future__ import annotations

import re

VARIABLE = "LD_PRELOAD"
_SEPARATORS = re.compile(r"[ :]+")


def can_be_preloaded(path: str) -> bool:
    """Whether the variable can name it: blanks and colons separate, and a dollar sign begins a name of its own."""
    return path.isprintable() and not set(path) & set(" :$")


def joined(library: str, before: str | None) -> str:
    """The variable with ``library`` first; whatever else the user has there stays."""
    return ":".join([library, *_others(library, before)])


def without(library: str, before: str | None) -> str | None:
    """The variable as it was before; None if nothing is left."""
    return ":".join(_others(library, before)) or None


def _others(library: str, before: str | None) -> list[str]:
    return [item for item in _SEPARATORS.split(before or "") if item and item != library]
