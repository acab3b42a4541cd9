"""The reservations of a server, on top of any backend; their rules are in `model/reservation.py`.

Level-triggered: at each change the wish is computed again from its base and the reservations, inside the backend's own
step, so that concurrent changes cannot undo each other.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence

from jupyter_gpu.backends.base import Backend, WithWorkers
from jupyter_gpu.model.annotations import Wish
from jupyter_gpu.model.errors import GpuError, InvalidRequest, StaleGeneration
from jupyter_gpu.model.reservation import (
    MAX_RESERVATIONS,
    Reservation,
    ReservationOwner,
    WishChange,
    idle,
    need,
    overruled,
    raised,
)
from jupyter_gpu.model.view import View

from .reservation_owners import OwnerWatcher

RETRY, LAST_RETRY = 2.0, 60.0
"""Seconds until giving back is retried: first, and at most."""
_REMEMBERED = 4096
"""The most keys of ended reservations to remember: one that is given back before it arrives never begins."""

_log = logging.getLogger(__name__)


class Reservations:
    """The reservations of one server. Runs on the event loop, except for the changes that the backend computes."""

    def __init__(self, backend: Backend, owners: OwnerWatcher) -> None:
        self._backend, self._owners = backend, owners
        self._reservations: dict[str, Reservation] = {}
        self._ended_keys: OrderedDict[str, bool] = OrderedDict()
        """Whether each was overruled."""
        self._needs = (0, 0)
        """The amount, and the part of it on one node; read in the backend's thread."""
        self._beginning: dict[str, tuple[ReservationOwner, asyncio.Event]] = {}
        self._lowering: asyncio.Task[None] | None = None
        self._stopped = False
        self.changed: Callable[[], None] = lambda: None
        """Called when a reservation begins or ends, whether or not that changes the wish."""
        self._unsubscribe: Callable[[], None] = backend.subscribe(self._on_view)
        self._on_view(backend.view())

    async def request(self, change: WishChange, generation: int | None, *, overrule: bool = False) -> View:
        """Change the base. ``overrule``: end the reservations that need more; otherwise they keep what they need."""

        def both(now: Wish | None) -> Wish:
            return raised(change(now), *(0, 0) if overrule else self._needs)

        return await self._backend.request(both, generation)

    async def begin(self, reservation: Reservation) -> View:
        """Begin ``reservation``; repeating it changes nothing. Raises as `Backend.request`."""
        if reservation.key in self._reservations:
            return self._backend.view()
        self._check_begin(reservation)
        if reservation.key in self._beginning:
            raise InvalidRequest("This reservation is beginning already.", field="key")
        if not isinstance(self._backend, WithWorkers) or self._backend.view().together >= reservation.milli:
            reservation = reservation._replace(together=False)  # there is one node only, or it is so already
        begun = asyncio.Event()
        self._beginning[reservation.key] = (reservation.owner, begun)
        try:
            await self._owners.check(reservation.owner)
            while True:
                self._check_begin(reservation)
                view = await self._backend.request(lambda now: raised(now, *self._with(reservation)))
                self._check_begin(reservation)
                if view.requested is not None and view.requested.milli >= reservation.milli:
                    break  # otherwise it was changed meanwhile: try again
            self._set({**self._reservations, reservation.key: reservation._replace(generation=view.generation)})
        finally:
            del self._beginning[reservation.key]
            self._on_view(self._backend.view())
            begun.set()
        return view

    async def end(self, key: str) -> View:
        """End the reservation ``key``, known or not. Raises `StaleGeneration` if it was overruled before."""
        was_overruled = self._ended_keys.get(key, False)
        self._finish(key, overruled=False)
        if was_overruled:
            raise StaleGeneration(
                "The GPUs of this block were taken back in the panel before it ended.",
                current=self._backend.view().generation,
            )
        if key in self._beginning:  # `begin` sees that the key has ended
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._beginning[key][1].wait(), RETRY)
        await self._lower_soon()
        return self._backend.view()

    def current(self) -> tuple[tuple[Reservation, int | None], ...]:
        """Return all reservations, each with the pid of its owner as this server sees it."""
        return tuple((one, self._owners.pid_of(one.owner)) for one in self._reservations.values())

    def stop(self) -> None:
        """End all reservations with the server."""
        self._stopped = True
        self._unsubscribe()
        self._owners.watch((), self._on_owner_end)
        if self._lowering:
            self._lowering.cancel()

    def _check_begin(self, reservation: Reservation) -> None:
        if reservation.key in self._ended_keys:
            raise InvalidRequest("This reservation was given back before it began.", field="key")
        if len(self._reservations) >= MAX_RESERVATIONS:
            raise InvalidRequest(f"{MAX_RESERVATIONS} blocks hold GPUs of this server, and no more may.", field="key")

    def _with(self, reservation: Reservation) -> tuple[int, int]:
        """Return what is needed with one more reservation."""
        return _needs((*self._reservations.values(), reservation))

    def _finish(self, key: str, *, overruled: bool) -> None:
        self._ended_keys[key] = overruled
        while len(self._ended_keys) > _REMEMBERED:
            self._ended_keys.popitem(last=False)
        if key in self._reservations:
            self._set({other: reservation for other, reservation in self._reservations.items() if other != key})

    def _set(self, reservations: dict[str, Reservation]) -> None:
        self._reservations = reservations
        self._needs = _needs(tuple(reservations.values()))
        self._owners.watch(
            {*(owner for owner, _ in self._beginning.values()), *(one.owner for one in reservations.values())},
            self._on_owner_end,
        )
        self.changed()

    def _on_owner_end(self, owner: ReservationOwner) -> None:
        for reservation in tuple(self._reservations.values()):
            if reservation.owner == owner:
                _log.info("Process %d ended: what it held is given back.", owner.pid)
                self._finish(reservation.key, overruled=False)
        self._on_view(self._backend.view())

    def _on_view(self, view: View) -> None:
        """End the reservations that were overruled, and lower the wish if it is for more than is needed."""
        for reservation in overruled(self._reservations.values(), view):
            self._finish(reservation.key, overruled=True)
        wish = view.requested.wish if view.requested else None
        if idle(wish, *self._needs) and not (self._beginning or self._lowering or self._stopped):
            self._lowering = asyncio.get_running_loop().create_task(self._lower())

    async def _lower_soon(self) -> None:
        """Begin to give back what no reservation needs, and wait a moment for it."""
        self._on_view(self._backend.view())
        if self._lowering:
            await asyncio.wait([self._lowering], timeout=RETRY)

    async def _lower(self) -> None:
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
            self._lowering = None
        self._on_view(self._backend.view())

    def _lowered(self, now: Wish | None) -> Wish:
        """Lower the wish, never raise it: a smaller one that was written meanwhile was meant."""
        return raised(now, *self._needs) if idle(now, *self._needs) else now or Wish(0)


def _needs(reservations: Sequence[Reservation]) -> tuple[int, int]:
    return need(reservations), need(reservations, together=True)
