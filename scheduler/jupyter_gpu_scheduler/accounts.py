"""Writes the accounts of owners (``GpuAccount``): what each may have, has and has used.

Pages, panels and administrators read them. The scheduler itself reads them once, when it begins to lead: what was used
before, and since when an owner has had more than the maximum.

A change is written after `FLUSH_SECONDS`, together with those that follow in that time. GPU time alone is written every
`HOURS_SECONDS`, by a new leader as by the last one. While the cluster does not have this kind of object, nothing is
written, and all else goes on.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Kube, KubeError, NotFound, ObjectChange, Reflector, Selection
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.limits.account import Account, read_account
from jupyter_gpu.model.limits.limit import GROUP, VERSION
from jupyter_gpu.model.limits.owner import Owner

from .cluster_cache import ClusterCache
from .metrics import SchedulerMetrics
from .rules.accounts.statement import only_time

FLUSH_SECONDS = 0.2
HOURS_SECONDS = 300.0
STALE_SECONDS = 3600.0
"""Seconds between two looks for accounts that say nothing any more."""
RETRY_SECONDS = 5.0
"""Seconds before something that could not be written is tried again."""
CONCURRENT = 4
"""Accounts that are written at once."""
JSON_PATCH = "application/json-patch+json"

_log = logging.getLogger(__name__)


class AccountWriter:
    """The accounts of one process; `begin` and `keep` are for the leader. ``trouble`` is as by `Reflector`."""

    def __init__(
        self,
        kube: Kube,
        cache: ClusterCache,
        metrics: SchedulerMetrics,
        trouble: Callable[[str], None],
    ) -> None:
        self._kube = kube
        self._cache = cache
        self._metrics = metrics
        self._statuses: dict[str, Mapping[str, Any]] = {}  # of accounts, by name, as last written or read
        self._times: dict[Owner, float] = {}  # until when the GPU time of an owner is written
        self._changed_owners = cache.owners.follow()
        self._due: dict[Owner, None] = {}
        self._reflector = Reflector(
            kube,
            Selection(paths.accounts(), optional=True),
            on_change=self._changed,
            on_trouble=trouble,
            newest=True,
        )

    @property
    def synced(self) -> asyncio.Event:
        """Set once all accounts are known, or that the cluster has no such kind."""
        return self._reflector.synced

    @property
    def trouble(self) -> str:
        """Reason the accounts can't be followed now; empty while they can."""
        return self._reflector.trouble

    async def run(self) -> None:
        """Follow the accounts until cancelled."""
        await self._reflector.run()

    def begin(self) -> None:
        """Take over what the last leader wrote, before anything is decided: budgets count it."""
        for item in self._reflector.objects.values():
            account = read_account(item)
            if account:
                if account.problem:
                    _log.warning("Account %s: %s", objects.name(item), account.problem)
                self._cache.restore(account)
                self._times[account.owner] = float(account.counted_until or 0)
        self._due.update(dict.fromkeys(self._cache.owners.known()))

    async def keep(self) -> None:
        """Write the accounts that change, until cancelled."""
        stale_at = 0.0
        while True:
            await asyncio.sleep(FLUSH_SECONDS)
            self._collect()
            if not self._reflector.absent:
                await self._write_due()
            if time.monotonic() >= stale_at:
                stale_at = time.monotonic() + STALE_SECONDS
                await self._remove_stale()

    def _changed(self, change: ObjectChange) -> None:
        """Note an account as it is; one that another writer changed or removed is written again."""
        name, status = objects.name(change.object), change.object.get("status")
        before = self._statuses.pop(name, None)
        if change.kind != "removed":
            self._statuses[name] = status if isinstance(status, Mapping) else {}
        account = read_account(change.object) if self._statuses.get(name) != before else None
        if account and (change.kind != "removed" or self._cache.owners.knows(account.owner)):
            self._due[account.owner] = None

    def _collect(self) -> None:
        """Note the accounts to write: those that changed, and those whose GPU time was written long ago."""
        now = time.time()
        self._due.update(dict.fromkeys(self._changed_owners.take()))
        for owner in self._cache.owners.holding():
            if now - self._times.get(owner, 0.0) >= HOURS_SECONDS or now < self._times.get(owner, 0.0):
                self._due[owner] = None

    async def _remove_stale(self) -> None:
        """Remove the accounts of owners who are gone: they hold nothing, wait for nothing, and used nothing lately."""
        for owner in self._cache.owners.forget_stale():
            self._times.pop(owner, None)
            self._due.pop(owner, None)
            name = Account(owner).object_name
            if name not in self._statuses:
                continue
            try:
                await self._kube.delete(paths.account(name))
            except NotFound:
                continue
            except KubeError as error:  # the next leader takes it over, and removes it
                self._metrics.writes.labels("account", "failed").inc()
                _log.warning("The account %s of a gone owner can't be removed: %s", name, error.message)

    async def _write_due(self) -> None:
        slots = asyncio.Semaphore(CONCURRENT)

        async def write(owner: Owner) -> None:
            async with slots:
                await self._write(owner)

        owners = tuple(self._due)
        self._due.clear()
        async with asyncio.TaskGroup() as tasks:
            for owner in owners:
                tasks.create_task(write(owner))

    async def _write(self, owner: Owner) -> None:
        account = self._cache.owners.account(owner)
        name, status = account.object_name, account.status()
        before = self._statuses.get(name)
        late = time.time() - self._times.get(owner, 0.0) >= HOURS_SECONDS
        if before is not None and (before == status or (only_time(before, status) and not late)):
            return
        try:
            await self._put(name, account, status)
        except KubeError as error:
            self._metrics.writes.labels("account", "failed").inc()
            _log.warning("The account %s can't be written now: %s", name, error.message)
            asyncio.get_running_loop().call_later(RETRY_SECONDS, self._due.setdefault, owner)
        else:
            self._metrics.writes.labels("account", "done").inc()
            self._statuses[name] = status
            self._times[owner] = time.time()

    async def _put(self, name: str, account: Account, status: Mapping[str, Any]) -> None:
        """Write a status; create the object if it is not there."""
        replaced = [{"op": "add", "path": "/status", "value": status}]
        try:
            await self._kube.patch(paths.account(name, "status"), replaced, content_type=JSON_PATCH)
        except NotFound:
            body = {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "GpuAccount",
                "metadata": {"name": name},
                "spec": account.spec(),
            }
            await self._kube.create(paths.accounts(), body)
            faults.point("scheduler:account")
            await self._kube.patch(paths.account(name, "status"), replaced, content_type=JSON_PATCH)
