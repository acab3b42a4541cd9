"""Pure: quick copies of frozen dataclasses with slots: several times faster than `dataclasses.replace`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import TypeVar

T = TypeVar("T")


def copier(cls: type[T], slots: Sequence[str]) -> Callable[[T], T]:
    """Return a function that copies an object of a class with at least two ``slots``; nothing is computed anew."""
    read, setters = attrgetter(*slots), tuple(getattr(cls, name).__set__ for name in slots)

    def copied(item: T) -> T:
        made = object.__new__(cls)
        for put, value in zip(setters, read(item), strict=True):
            put(made, value)
        return made

    return copied
