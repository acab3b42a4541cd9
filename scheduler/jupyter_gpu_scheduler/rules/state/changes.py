"""Pure: which nodes changed since when, so that an index of nodes examines only these."""

from __future__ import annotations

MEMORY = 4096
"""Removed nodes that are remembered, so that the names of all former nodes do not stay."""


class Changes:
    """The number of the last change of each node; numbers only rise."""

    def __init__(self, memory: int = MEMORY) -> None:
        self._memory = memory
        self._versions: dict[str, int] = {}  # the node that changed last is last
        self._removed: dict[str, int] = {}  # likewise
        self._forgotten = 0
        self._count = 0

    @property
    def last(self) -> int:
        """The number of the last change of any node."""
        return self._count

    def put(self, node: str) -> None:
        """Record a change of a node."""
        self._count += 1
        self._versions.pop(node, None)
        self._removed.pop(node, None)
        self._versions[node] = self._count

    def remove(self, node: str) -> None:
        """Record that a node is gone; that one which never was there is gone is no error."""
        self._count += 1
        self._versions.pop(node, None)
        self._removed.pop(node, None)
        self._removed[node] = self._count
        if len(self._removed) > self._memory:
            self._forgotten = self._removed.pop(next(iter(self._removed)))

    def version(self, node: str) -> int:
        """Return the number of the last change of a node that is there; 0 where it never changed."""
        return self._versions.get(node, 0)

    def since(self, number: int) -> set[str] | None:
        """Return the nodes that changed or were removed after the change with this number.

        ``None``: not known, as a node that was removed meanwhile is forgotten. It costs as much as nodes changed.
        """
        if number < self._forgotten:
            return None
        found: set[str] = set()
        for versions in (self._versions, self._removed):
            for node in reversed(versions):
                if versions[node] <= number:
                    break
                found.add(node)
        return found
