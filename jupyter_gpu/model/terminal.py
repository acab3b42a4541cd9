"""The style in which a terminal is drawn on."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Style:
    """Size and abilities of a terminal."""

    width: int = 80
    height: int | None = None
    """None: as many lines as there are."""
    colour: bool = False
    unicode: bool = True
