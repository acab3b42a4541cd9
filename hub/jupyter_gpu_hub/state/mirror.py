"""The mirror of the hub's groups: their members and properties, written into group limits."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Mapping

from jupyter_gpu.kube import KubeError, ObjectStore
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.limits.limit import Limit
from jupyter_gpu_hub.rules import mirror
from jupyter_gpu_hub.rules.groups import Group
from jupyter_gpu_hub.rules.mirror import RemoveProperties, SetMembers, Write, WriteProperties, properties_object

from .hub_api import HubApi, HubUnavailable

_log = logging.getLogger(__name__)


class Mirror:
    """Reads the groups again and again, and writes what differs. What was mirrored last holds while the hub is away."""

    def __init__(
        self,
        store: ObjectStore,
        hub: HubApi,
        name: str,
        limits: Callable[[], Iterable[Limit]],
        *,
        every: float,
        shared: bool,
        writes: bool,
        properties: bool,
        changed: Callable[[], None],
    ) -> None:
        self._store = store
        self._hub = hub
        self._name = name
        self._limits = limits
        self._every = every
        self._shared = shared
        self._writes = writes
        self._properties = properties
        self._changed = changed
        self._wake = asyncio.Event()
        self.groups: Mapping[str, Group] = {}
        """Groups as they were read last."""
        self.version = 0
        """Counts their changes."""
        self.trouble = ""
        """Reason the groups cannot be mirrored now; empty: they can."""
        self.heard: float | None = None
        """Seconds since 1970 when the groups were read last; ``None``: not yet."""

    def wake(self) -> None:
        """Look again soon: a limit changed."""
        self._wake.set()

    async def run(self) -> None:
        """Mirror until cancelled; log a failure once, and try again."""
        while True:
            self._wake.clear()
            try:
                await self.once()
                self._tell("")
            except (HubUnavailable, KubeError) as error:
                self._tell(str(error))
            try:
                await asyncio.wait_for(self._wake.wait(), self._every)
                await asyncio.sleep(min(1.0, self._every))  # changes come in crowds, and each has the hub asked
            except TimeoutError:
                continue

    async def once(self) -> None:
        """Read the groups, and write what differs. Raises `HubUnavailable` and `KubeError`."""
        found = await self._hub.groups()
        self.heard = time.time()
        if found != self.groups:
            self.groups = found
            self.version += 1
            self._changed()
        failed: KubeError | None = None
        for write in mirror.plan(found, self._limits(), self._name, shared=self._shared) if self._writes else ():
            if not self._properties and not isinstance(write, SetMembers):
                continue  # limits are kept elsewhere
            try:
                await self._write(write)
            except KubeError as error:  # the others must not wait for one that is refused
                failed = error
        if failed:
            raise failed

    async def _write(self, write: Write) -> None:
        match write:
            case SetMembers(name):
                await self._store.patch(paths.limit(name, "status"), {"status": write.status})
            case RemoveProperties(name):
                await self._store.delete(paths.limit(name))
            case WriteProperties(name, exists=exists):
                body = properties_object(write)
                if exists:
                    await self._store.patch(paths.limit(name), body)
                else:
                    await self._store.create(paths.limits(), body)

    def _tell(self, trouble: str) -> None:
        if trouble == self.trouble:
            return
        self.trouble = trouble
        if trouble:
            _log.warning("The hub's groups are not mirrored now, and what was mirrored last holds: %s", trouble)
        else:
            _log.info("The hub's groups are mirrored again.")
        self._changed()
