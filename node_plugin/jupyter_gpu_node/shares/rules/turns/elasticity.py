"""The settings of co-adjustment (`elastic`). Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields

from jupyter_gpu.model.quantity import MILLI_PER_GPU

LIMITS: Mapping[str, tuple[float, float]] = {
    "grow": (0.01, 1),
    "give": (0.01, 1),
    "shrink": (0, 1),
    "step": (1, MILLI_PER_GPU),
    "floor": (0, 1),
    "patience": (1, 1_000),
    "fade": (1, 100_000),
    "smooth": (1, 1_000),
}
"""Least and most of each setting."""


@dataclass(frozen=True, slots=True)
class Elastic:
    """The settings of one GPU. Raises `ValueError` for what cannot work, in words for the administrator."""

    grow: float = 0.9
    """A share that uses at least this part of what it has should grow."""
    give: float = 0.5
    """One that uses less than this can give to others, and keeps as much as makes its use this part."""
    shrink: float = 0.3
    """One that uses less than this shrinks by itself."""
    step: int = 50
    """Most milli by which a share grows, or shrinks by itself, in one pass."""
    floor: float = 0.1
    """The part of its allocated milli that a share keeps if it uses nothing; at least 1. At the defaults of
    `Timing` its bank is full again after 20 seconds, so that a burst after a rest can be paid for."""
    patience: int = 2
    """Passes in which a share must look the same before it grows, gives or shrinks. It gets its own back at once."""
    fade: int = 20
    """Passes in which a peak of use counts half."""
    smooth: int = 10
    """Passes over which use is averaged before a share grows: short bursts count with the pauses between them."""

    def __post_init__(self) -> None:
        for one in fields(self):
            value, (least, most) = getattr(self, one.name), LIMITS[one.name]
            if isinstance(value, bool) or not isinstance(value, int if one.type == "int" else int | float):
                raise ValueError(f"{one.name} is {value!r}; it must be a number{', whole' * (one.type == 'int')}.")
            if not least <= value <= most:
                raise ValueError(f"{one.name} is {value}; it must be from {least} to {most}.")
        if not self.shrink < self.give < self.grow:
            raise ValueError(f"shrink {self.shrink}, give {self.give}, grow {self.grow}: each must be above the last.")
