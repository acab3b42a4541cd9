"""Leases on top of any backend; their rules are in `model/lease.py`.

Level-triggered: at each change the wish is computed again from its base and the leases, inside the backend's own step,
so that concurrent changes cannot undo each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable

from jupyter_gpu.backends.base import Backend
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import GpuError, InvalidRequest, StaleGeneration
from jupyter_gpu.model.lease import MAX_LEASES, Lease, LeaseOwner, WishChange, idle, need, overruled, raised
from jupyter_gpu.model.view import View

from .lease_owners import LeaseOwners

RETRY, LAST_RETRY = 2.0, 60.0
"""Seconds until giving back is retried: first, and at most."""
_REMEMBERED = 4096
"""Number of keys of ended leases to remember: a lease that was given back before it arrived never begins."""

_log = logging.getLogger(__name__)


class Leases:
    """The leases of one server. Everything runs on its event loop, except the changes that the backend computes."""

    def __init__(self, backend: Backend, owners: LeaseOwners) -> None:
        self._backend, self._owners = backend, owners
        self._leases: dict[str, Lease] = {}
        self._over: OrderedDict[str, bool] = OrderedDict()
        """By key, whether it was overruled."""
        self._need = 0  # read in the backend's thread
        self._beginning: dict[str, tuple[LeaseOwner, asyncio.Event]] = {}
        self._settling: asyncio.Task[None] | None = None
        self._stopped = False
        self.changed: Callable[[], None] = lambda: None
        """Called when other blocks hold leases than before, whether or not that changes the wish."""
        self._unsubscribe: Callable[[], None] = backend.subscribe(self._see)
        self._see(backend.view())

    async def request(self, change: WishChange, generation: int | None, *, overrule: bool = False) -> View:
        """Set another base. ``overrule``: leases that need more than it end; else they keep what they need."""

        def both(now: Wish | None) -> Wish:
            return raised(change(now), 0 if overrule else self._need)

        return await self._backend.request(both, generation)

    async def begin(self, lease: Lease) -> View:
        """Hold ``lease`` from now on; repeating it changes nothing. Raises as `Backend.request`."""
        if lease.key in self._leases:
            return self._backend.view()
        self._check_begin(lease)
        if lease.key in self._beginning:
            raise InvalidRequest("This lease is just being begun.", field="key")
        begun = asyncio.Event()
        self._beginning[lease.key] = (lease.owner, begun)
        try:
            await self._owners.check(lease.owner)
            while True:
                self._check_begin(lease)
                view = await self._backend.request(lambda now: raised(now, max(self._need, lease.milli)))
                self._check_begin(lease)
                if view.requested is not None and view.requested.milli >= lease.milli:
                    break  # else it was changed meanwhile: once more
            self._set({**self._leases, lease.key: lease._replace(generation=view.generation)})
        finally:
            del self._beginning[lease.key]
            self._see(self._backend.view())
            begun.set()
        return view

    async def end(self, key: str) -> View:
        """Give ``key`` back, known or not. Raises `StaleGeneration` if it was overruled before."""
        was_overruled = self._over.get(key, False)
        self._finish(key, overruled=False)
        if was_overruled:
            raise StaleGeneration(
                "The GPUs of this block were taken back in the panel before it ended.",
                current=self._backend.view().generation,
            )
        if key in self._beginning:  # it will notice that it is over
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._beginning[key][1].wait(), RETRY)
        await self._settle()
        return self._backend.view()

    def held(self) -> tuple[tuple[Lease, int | None], ...]:
        """Return all leases, each with the pid of its owner as seen by this server."""
        return tuple((lease, self._owners.pid_of(lease.owner)) for lease in self._leases.values())

    def stop(self) -> None:
        """End all leases with the server."""
        self._stopped = True
        self._unsubscribe()
        self._owners.watch((), self._ended)
        if self._settling:
            self._settling.cancel()

    def _check_begin(self, lease: Lease) -> None:
        if lease.key in self._over:
            raise InvalidRequest("This lease was given back before it began.", field="key")
        if len(self._leases) >= MAX_LEASES:
            raise InvalidRequest(f"{MAX_LEASES} blocks hold GPUs of this server, and no more may.", field="key")

    def _finish(self, key: str, *, overruled: bool) -> None:
        self._over[key] = overruled
        while len(self._over) > _REMEMBERED:
            self._over.popitem(last=False)
        if key in self._leases:
            self._set({other: lease for other, lease in self._leases.items() if other != key})

    def _set(self, leases: dict[str, Lease]) -> None:
        self._leases = leases
        self._need = need(leases.values())
        self._owners.watch(
            {*(owner for owner, _ in self._beginning.values()), *(lease.owner for lease in leases.values())},
            self._ended,
        )
        self.changed()

    def _ended(self, owner: LeaseOwner) -> None:
        for lease in tuple(self._leases.values()):
            if lease.owner == owner:
                _log.info("Process %d ended: what it held is given back.", owner.pid)
                self._finish(lease.key, overruled=False)
        self._see(self._backend.view())

    def _see(self, view: View) -> None:
        """Find in a view which leases were overruled, and whether more is requested than needed."""
        for lease in overruled(self._leases.values(), view):
            self._finish(lease.key, overruled=True)
        wish = view.requested.wish if view.requested else None
        if idle(wish, self._need) and not (self._beginning or self._settling or self._stopped):
            self._settling = asyncio.get_running_loop().create_task(self._settle_until_done())

    async def _settle(self) -> None:
        """Give back what no lease holds, now or as soon as possible."""
        self._see(self._backend.view())
        if self._settling:
            await asyncio.wait([self._settling], timeout=RETRY)

    async def _settle_until_done(self) -> None:
        pause = RETRY
        try:
            while True:
                try:
                    await self._backend.request(self._lowered)
                except GpuError as error:
                    _log.warning("What a block of code held is given back as soon as that is possible: %s", error)
                else:
                    break
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_RETRY)
        finally:
            self._settling = None
        self._see(self._backend.view())

    def _lowered(self, now: Wish | None) -> Wish:
        """Lower the wish, never raise it: a smaller one that was written meanwhile was meant."""
        return raised(now, self._need) if idle(now, self._need) else now or Wish(0)
