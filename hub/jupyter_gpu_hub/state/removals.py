"""The reader and writer of the record of removed limits."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from jupyter_gpu.kube import Conflict, NotFound, ObjectStore
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu_hub.rules.edits import WRITER
from jupyter_gpu_hub.rules.removed import OBJECT, RemovedLimit, is_record, read_record, record_object, updated

TRIES = 4
"""Attempts to write while others write the record."""


class Removals:
    """The record. A limit is recorded before it is removed: a process that is killed in between loses nothing, and a
    limit that is still there is not shown as removed. Raises `KubeError`.
    """

    def __init__(self, store: ObjectStore) -> None:
        self._store = store
        self._changes: dict[str, RemovedLimit | None] = {}  # to be written, by uid; ``None``: to be forgotten
        self._lock = asyncio.Lock()

    async def read(self) -> tuple[RemovedLimit, ...]:
        """Return the recorded limits, oldest first."""
        return read_record(await self._get() or {})

    async def add(self, removed: RemovedLimit) -> None:
        """Record a limit; many at the same time are one write."""
        await self._change(removed.uid, removed)

    async def forget(self, uid: str) -> None:
        """Forget a limit that was not removed after all."""
        await self._change(uid, None)

    async def _change(self, uid: str, change: RemovedLimit | None) -> None:
        self._changes[uid] = change
        async with self._lock:
            if self._changes.get(uid, ...) is not change:
                return  # it was written with another one's, or it changed again
            batch, self._changes = self._changes, {}
            try:
                await self._write(batch)
            except BaseException:
                del batch[uid]
                self._changes = {**batch, **self._changes}  # those who wait for them write them
                raise

    async def _write(self, batch: Mapping[str, RemovedLimit | None]) -> None:
        added = [change for change in batch.values() if change]
        for attempt in range(TRIES):
            found = await self._get()
            record = updated(read_record(found or {}), added, batch)
            made = record_object(record, WRITER)
            try:
                if found is None:
                    await self._store.create(paths.limits(), made)
                else:
                    metadata = {
                        "resourceVersion": objects.resource_version(found),
                        "annotations": made["metadata"]["annotations"],
                    }
                    await self._store.patch(paths.limit(OBJECT), {"metadata": metadata})
                return
            except (Conflict, NotFound):
                if attempt == TRIES - 1:
                    raise

    async def _get(self) -> Mapping[str, Any] | None:
        """Return the object, ``None`` where there is none. One of that name that limits somebody is left alone."""
        try:
            found = await self._store.get(paths.limit(OBJECT))
        except NotFound:
            return None
        if not is_record(found):
            text = f"The limit {OBJECT} limits somebody, and is not the record of removed limits: give it another name."
            raise Conflict(409, "Conflict", text)
        return found
