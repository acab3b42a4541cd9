"""The members of the machine's own groups, from its user database."""

from __future__ import annotations

import grp
import pwd
import time

AGAIN = 60.0
"""Seconds after which a group is looked up again."""


class MachineGroups:
    """The groups that were looked up. May block: the database may be on a network."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[float, frozenset[str]]] = {}

    def __call__(self, name: str) -> frozenset[str]:
        """Return the members of a group of that name; none where the machine has no such group."""
        now = time.monotonic()
        if name not in self._known or self._known[name][0] < now:
            self._known[name] = now + AGAIN, _members(name)
        return self._known[name][1]


def _members(name: str) -> frozenset[str]:
    try:
        group = grp.getgrnam(name)
        first = {user.pw_name for user in pwd.getpwall() if user.pw_gid == group.gr_gid}
        return frozenset({*group.gr_mem, *first})
    except (KeyError, OSError, ValueError):  # no name that a database could have
        return frozenset()
