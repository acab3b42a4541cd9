"""The hub's answers about tokens: how long each counts. Pure: time is an argument, in seconds by one clock."""

from __future__ import annotations

import sys
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

MOST = 20_000
"""Answers that are kept; the oldest is forgotten first."""
_KEPT = ("kind", "name", "admin")
_SCOPES = ("access:", "custom:")
"""How scopes begin that say something about this service."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The hub's answer about one token."""

    model: Mapping[str, Any] | None
    """The owner of the token; ``None``: the hub does not know the token."""
    asked: float
    """The moment at which the hub was asked."""


class Answers:
    """The newest answer about each token.

    One that is younger than ``fresh`` seconds counts without another question. One that names an owner, and is younger
    than ``usable``, counts while the hub can't be asked.
    """

    def __init__(self, *, fresh: float, usable: float, most: int = MOST) -> None:
        self._fresh = fresh
        self._usable = max(fresh, usable)
        self._most = most
        self._answers: OrderedDict[str, Answer] = OrderedDict()  # oldest first

    def __len__(self) -> int:
        """Return the number of answers that are kept."""
        return len(self._answers)

    def put(self, key: str, answer: Answer) -> None:
        """Keep an answer, unless a newer one is there; forget those that count no more."""
        known = self._answers.get(key)
        if known is None or known.asked <= answer.asked:
            self._answers[key] = answer
            self._answers.move_to_end(key)
        while len(self._answers) > 1:
            oldest = next(iter(self._answers.values()))
            if len(self._answers) <= self._most and answer.asked - oldest.asked < self._usable:
                break
            self._answers.popitem(last=False)

    def fresh(self, key: str, now: float) -> Answer | None:
        """Return the answer that counts without another question; ``None``: the hub must be asked."""
        found = self._answers.get(key)
        return found if found and now - found.asked < self._fresh else None

    def usable(self, key: str, now: float) -> Answer | None:
        """Return the answer that counts while the hub can't be asked; ``None``: there is none."""
        found = self._answers.get(key)
        return found if found and found.model is not None and now - found.asked < self._usable else None


def small(model: Any) -> dict[str, Any] | None:
    """Return what this service reads of the hub's description of an owner, which has tens of scopes for each user."""
    if not isinstance(model, Mapping):
        return None
    kept = {key: model[key] for key in _KEPT if key in model}
    return {**kept, "groups": _texts(model.get("groups")), "scopes": _texts(model.get("scopes"), _SCOPES)}


def _texts(value: Any, begins: tuple[str, ...] = ("",)) -> tuple[str, ...]:
    found = value if isinstance(value, list | tuple) else ()
    return tuple(sys.intern(item) for item in found if type(item) is str and item.startswith(begins))
