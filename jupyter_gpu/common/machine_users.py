"""The users of the machine, by the number that the kernel vouches for: their names, and their groups.

The databases may be on a network that is slow or away. So they are asked while the state directory is not locked, and
what was known last holds while they don't answer.
"""

from __future__ import annotations

import grp
import os
import pwd
import time
from collections.abc import Iterable
from typing import NamedTuple

AGAIN = 60.0
"""Seconds after which a user is looked up again: groups change."""


class User(NamedTuple):
    """A user of the machine."""

    name: str
    """The number, where the user database has no name for it."""
    groups: frozenset[str] = frozenset()


class Users:
    """The users that were looked up."""

    def __init__(self) -> None:
        self._known: dict[int, User] = {}
        self._asked: dict[int, float] = {}

    def learn(self, numbers: Iterable[int]) -> bool:
        """Look up the users that are new, or were looked up long ago; return whether one changed. May block."""
        now, changed = time.monotonic(), False
        for number in set(numbers):
            if number in self._asked and now < self._asked[number] + AGAIN:
                continue
            self._asked[number] = now
            found = _look_up(number) or self._known.get(number)
            changed |= found != self._known.get(number)
            if found:
                self._known[number] = found
        return changed

    def get(self, number: int) -> User:
        """Return a user as known; never blocks."""
        return self._known.get(number) or User(str(number))


def _look_up(number: int) -> User | None:
    """Return a user and the groups, or ``None`` if the database has none, or does not answer."""
    try:
        entry = pwd.getpwuid(number)
        numbers = os.getgrouplist(entry.pw_name, entry.pw_gid)
    except (KeyError, OSError):
        return None
    return User(entry.pw_name, frozenset(filter(None, map(_group, numbers))))


def groups_of(name: str) -> frozenset[str]:
    """Return the groups of a user, none where the database has no such user."""
    try:
        return (_look_up(pwd.getpwnam(name).pw_uid) or User(name)).groups
    except KeyError:
        return frozenset()


def _group(number: int) -> str:
    try:
        return grp.getgrgid(number).gr_name
    except (KeyError, OSError):
        return ""
