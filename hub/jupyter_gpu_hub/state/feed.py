"""The news for open pages: which tables changed. What a page shows it asks for by REST."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager

FAREWELL = 2.0
"""Seconds that pages' connections have to end."""
PAUSE = 0.25
"""Seconds between two messages to one page, at least."""


class TooManyPages(Exception):
    """The error of a page too many."""


class Feed:
    """The pages that listen, and a count of changes for each table."""

    def __init__(self, *, most: int, most_of_one: int) -> None:
        self._most = most
        self._most_of_one = most_of_one
        self._counts: Counter[str] = Counter()
        self._listeners: dict[asyncio.Event, str] = {}
        self.closed = False
        """Whether the service ends."""

    def changed(self, table: str) -> None:
        """Note a change of a table."""
        self._counts[table] += 1
        for event in self._listeners:
            event.set()

    @property
    def counts(self) -> dict[str, int]:
        """Changes so far, by table."""
        return dict(self._counts)

    @contextmanager
    def listen(self, person: str) -> Iterator[asyncio.Event]:
        """Add a page until the end of the block; its event is set at each change. Raises `TooManyPages`."""
        mine = sum(name == person for name in self._listeners.values())
        if len(self._listeners) >= self._most or mine >= self._most_of_one:
            raise TooManyPages
        event = asyncio.Event()
        self._listeners[event] = person
        try:
            yield event
        finally:
            del self._listeners[event]

    async def news(self, event: asyncio.Event, every: float) -> AsyncIterator[dict[str, int] | None]:
        """Yield the counts at once and after changes, and ``None`` where there was none for ``every`` seconds."""
        yield self.counts
        while not self.closed:
            try:
                await asyncio.wait_for(event.wait(), every)
            except TimeoutError:
                yield None
                continue
            await asyncio.sleep(PAUSE)  # many changes come together
            event.clear()
            if not self.closed:
                yield self.counts

    async def close(self) -> None:
        """End all pages' connections in order: a proxy passes on the end of an answer, and not that of a connection."""
        self.closed = True
        end = asyncio.get_running_loop().time() + FAREWELL
        while self._listeners and asyncio.get_running_loop().time() < end:
            for event in self._listeners:
                event.set()
            await asyncio.sleep(PAUSE / 10)
