"""Objects of one kind as they were read last, and what became of them since."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from jupyter_gpu.common import admin_file
from jupyter_gpu.kube import Gone, KubeError, Listing, WatchEvent
from jupyter_gpu.kube.client import Trim
from jupyter_gpu_hub.rules.machine.changes import Objects, changes
from jupyter_gpu_hub.rules.machine.identity import digest

POLL = 0.2
"""Seconds between two looks at the files' signatures, which is all that a look costs where nothing changed."""
PATIENCE = 1.0
"""Seconds that a writer waits until its change is told; where nothing follows the files it is not."""
AGAIN = 60.0
"""Seconds after which files are read again: what is in force depends on the time, groups on the user database."""


class Snapshot(NamedTuple):
    """All objects at one moment."""

    objects: Objects
    version: str


class Collection:
    """The objects that ``read`` makes of some files. It raises `KubeError`, and is called in a thread."""

    def __init__(self, read: Callable[[], Objects], files: Sequence[Path]) -> None:
        self._read, self._files = read, files
        self._lock = asyncio.Lock()
        self._seen: object = None
        self._until = 0.0
        self._error: KubeError | None = None
        self._snapshot = Snapshot({}, "")
        self._wake = asyncio.Event()
        self._told = asyncio.Condition()
        self._wanted = self._looked = self._done = 0  # looks that were asked for, begun, and told of

    @property
    def latest(self) -> Objects:
        """The objects by name, as they were read last."""
        return self._snapshot.objects

    async def current(self) -> Snapshot:
        """Return the objects as they are now. Raises `KubeError`."""
        async with self._lock:
            seen = [admin_file.signature(path) for path in self._files]
            if seen != self._seen or time.monotonic() >= self._until or self._error:
                await self._load(seen)
        if self._error:
            raise self._error
        return self._snapshot

    async def _load(self, seen: object) -> None:
        try:
            found = await asyncio.to_thread(self._read)
        except KubeError as error:
            self._error = error
            return
        version = digest(sorted((name, item["metadata"]["resourceVersion"]) for name, item in found.items()))
        self._snapshot = Snapshot(found, version)
        self._seen, self._until, self._error = seen, time.monotonic() + AGAIN, None

    async def list(self, trim: Trim | None) -> Listing:
        """List the objects."""
        found = await self.current()
        items = [trim(item) if trim else item for item in found.objects.values()]
        return Listing(items, found.version)

    async def watch(self, version: str, opened: Callable[[], None] | None) -> AsyncIterator[WatchEvent]:
        """Yield the changes after ``version``, the newest that was listed or told. Raises `KubeError`, as `Gone`."""
        seen = self._snapshot
        if seen.version != version:
            raise Gone(410, "Expired", "The files were read again since then.")
        found = await self.current()
        if opened:
            opened()
        while True:
            for kind, item in changes(seen.objects, found.objects):
                yield WatchEvent(kind, item)
            if found.version != seen.version:
                yield WatchEvent("BOOKMARK", {"metadata": {"resourceVersion": found.version}})
            seen = found
            await self._tell()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), POLL)
            self._wake.clear()
            self._looked = self._wanted
            found = await self.current()

    async def catch_up(self) -> None:
        """Wait until what was just written is told, so that who wrote it finds it; not for long."""
        self._wanted += 1
        wanted = self._wanted
        self._wake.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(PATIENCE), self._told:
                await self._told.wait_for(lambda: self._done >= wanted)

    async def _tell(self) -> None:
        self._done = self._looked
        async with self._told:
            self._told.notify_all()
