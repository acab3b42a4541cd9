"""Connections that say what cannot be read: after a few such words nothing of theirs is read any more."""

from __future__ import annotations

PATIENCE = 16
"""Words of one connection that are answered though they cannot be read."""
REMEMBERED = 256
"""Connections that are remembered."""


class Unreadable:
    """The words that could not be read, counted by connection. A connection that is opened anew begins at none."""

    def __init__(self) -> None:
        self._words: dict[bytes, int] = {}

    def add(self, client: bytes) -> None:
        """Count a word of a connection; the one that was counted first is forgotten where there are too many."""
        self._words[client] = self._words.get(client, 0) + 1
        if len(self._words) > REMEMBERED:
            del self._words[next(iter(self._words))]

    def ignores(self, client: bytes) -> bool:
        """Tell whether nothing of a connection is to be read any more."""
        return self._words.get(client, 0) >= PATIENCE
