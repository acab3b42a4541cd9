"""The objects that the service asks a cluster for, of one machine: limits, accounts, pods, and the machine as a node.

Limits are written here; all else is written by the process that counts GPU-hours, and read.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import tzinfo
from typing import Any
from urllib.parse import unquote

from jupyter_gpu.common import limits_file
from jupyter_gpu.kube import KubeError, Listing, NotFound, WatchEvent
from jupyter_gpu.kube.client import Trim
from jupyter_gpu.kube.errors import Conflict
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.limits import machine_use
from jupyter_gpu.model.limits.index import LimitIndex
from jupyter_gpu.model.limits.read_limit import read_limit
from jupyter_gpu_hub.rules import removed
from jupyter_gpu_hub.rules.machine import limit_document, merge_patch, use_objects
from jupyter_gpu_hub.rules.machine.changes import Objects
from jupyter_gpu_hub.rules.machine.identity import versioned
from jupyter_gpu_hub.rules.machine.limit_document import Groups, LimitDocument

from . import files
from .collection import Collection
from .files import LimitsFile, Paths, RecordFile
from .groups import MachineGroups

MAX_RECORD = 2 * removed.MAX_BYTES
"""Most bytes of the record of removed limits: a text in a text."""


class MachineStore:
    """An `ObjectStore` over the files of one machine, all of whose users are of one hub, ``hub``.

    ``zone``: where hours and budgets are read on the clock.
    """

    def __init__(self, places: Paths, hub: str, zone: tzinfo) -> None:
        self._paths, self._hub, self._zone = places, hub, zone
        self._machine_groups = MachineGroups()
        self._file = LimitsFile(places, hub, self._group_members)
        self._record = RecordFile(places.removed, MAX_RECORD)
        self._writing = asyncio.Lock()
        use, accounts = places.state / machine_use.NAME, places.state / limits_file.ACCOUNTS
        self._limits = Collection(lambda: self._file.read().objects, (places.limits, accounts))
        self._collections = {
            paths.limits(): self._limits,
            paths.accounts(): Collection(self._read_accounts, (accounts, use, places.limits)),
            paths.pods(): Collection(lambda: use_objects.pod_objects(self._use(), hub), (use,)),
            paths.nodes(): Collection(lambda: use_objects.node_objects(self._use()), (use,)),
        }

    async def get(self, path: str) -> dict[str, Any]:
        """Read one limit, or the record of removed ones, as it is now."""
        name, _ = _name(path)
        if name == removed.OBJECT:
            found = await asyncio.to_thread(self._record.read)
        else:
            found = (await asyncio.to_thread(self._file.read)).objects.get(name)
        return _found(found, name)

    async def list(self, path: str, *, trim: Trim | None = None, **_: Any) -> Listing:
        """List all objects; selectors and pages have no meaning here."""
        return await self._collection(path).list(trim)

    async def watch(
        self, path: str, *, resource_version: str, opened: Callable[[], None] | None = None, **_: Any
    ) -> AsyncIterator[WatchEvent]:
        """Yield every change after ``resource_version``."""
        async for event in self._collection(path).watch(resource_version, opened):
            yield event

    async def create(self, path: str, body: Mapping[str, Any]) -> dict[str, Any]:
        """Create a limit, or the record of removed ones."""
        self._collection(path)
        if objects.name(body) == removed.OBJECT:
            return await self._write_record(lambda old: _new(old, body))
        uid = secrets.token_hex(16)
        after = await self._change(lambda file: limit_document.created(file, body, uid))
        return after.entries[-1].object

    async def patch(self, path: str, body: Mapping[str, Any] | Sequence[Mapping[str, Any]], **_: Any) -> dict[str, Any]:
        """Change a limit, or its status, or the record of removed ones, by a merge patch."""
        name, sub = _name(path)
        assert isinstance(body, Mapping)
        if name == removed.OBJECT:
            return await self._write_record(lambda old: _patched(old, body))
        after = await self._change(lambda file: limit_document.patched(file, name, body, status=sub == "status"))
        return _found(after.objects.get(name), name)

    async def delete(self, path: str, *, uid: str = "", resource_version: str = "") -> None:
        """Remove a limit; one that is gone already is no error."""
        name, _ = _name(path)
        try:
            await self._change(lambda file: limit_document.removed(file, name, uid, resource_version))
        except NotFound:
            return

    def mirrored(self, name: str) -> frozenset[str]:
        """Return the members that the mirror wrote last into the limit of that name."""
        found = self._limits.latest.get(name)
        return limit_document.mirrored(found) if found else frozenset()

    def _collection(self, path: str) -> Collection:
        found = self._collections.get(path)
        if found is None:
            raise _unknown(path)
        return found

    async def _change(self, make: Callable[[LimitDocument], LimitDocument]) -> LimitDocument:
        async with self._writing:
            after = await asyncio.to_thread(self._file.change, make)
        await self._limits.catch_up()
        return after

    async def _write_record(self, make: Callable[[dict[str, Any] | None], dict[str, Any]]) -> dict[str, Any]:
        def write() -> dict[str, Any]:
            made = versioned(make(self._record.read()))
            self._record.write(made)
            return made

        async with self._writing:
            return await asyncio.to_thread(write)

    def _group_members(self) -> Groups:
        """Return the members of groups for servers of this machine: of its own groups, and as the hub noted them."""
        noted: dict[str, set[str]] = {}
        with suppress(NotFound):
            for user, groups in files.accounts(self._paths).groups.items():
                for name in groups:
                    noted.setdefault(name, set()).add(user)
        return lambda name: self._machine_groups(name) | noted.get(name, set())

    def _use(self) -> machine_use.MachineUse:
        return files.use(self._paths).use

    def _read_accounts(self) -> Objects:
        written = files.accounts(self._paths)
        limits = LimitIndex(map(read_limit, self._file.read().objects.values()))
        return use_objects.account_objects(written, self._use(), limits, self._hub, time.time(), self._zone)


def _name(path: str) -> tuple[str, str]:
    """Return the name of a limit and the part of it that a path is about."""
    head = paths.limits() + "/"
    if not path.startswith(head):
        raise _unknown(path)
    name, _, sub = path.removeprefix(head).partition("/")
    return unquote(name), sub


def _unknown(path: str) -> KubeError:
    return KubeError(405, "MethodNotAllowed", f"A machine has no {path}, or it is not written here.")


def _found(item: dict[str, Any] | None, name: str) -> dict[str, Any]:
    if item is None:
        raise NotFound(404, "NotFound", f"There is no limit {name}.")
    return item


def _new(old: Mapping[str, Any] | None, body: Mapping[str, Any]) -> dict[str, Any]:
    if old is not None:
        raise Conflict(409, "AlreadyExists", f"There is {removed.OBJECT} already.")
    return {**body, "metadata": {**body["metadata"], "uid": removed.OBJECT}}


def _patched(old: Mapping[str, Any] | None, body: Mapping[str, Any]) -> dict[str, Any]:
    known = _found(dict(old) if old else None, removed.OBJECT)
    limit_document.check(known, "", objects.resource_version(body))
    made: dict[str, Any] = merge_patch.merged(known, body)
    return made
