"""Writes the wish into the pod: exactly once, on top of what was really there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from jupyter_gpu.backends.kubernetes.rules.views import advance, read
from jupyter_gpu.kube import Conflict, Forbidden, Invalid, KubeError, NotFound, Unavailable
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import Requested, Wish
from jupyter_gpu.model.errors import BackendUnavailable, StaleGeneration

from .own_pod import OwnPod

FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0
"""Seconds between attempts while the API server is away."""

_log = logging.getLogger(__name__)

Pod = Mapping[str, Any]


@dataclass(slots=True)
class _Attempt:
    """A wish that is to be recorded, and what was sent for it last."""

    wish: Callable[[Requested | None], Wish]
    generation: int | None
    anew: bool
    sent: Requested | None = None
    unknown: bool = False
    """Whether what was sent may have been recorded in spite of an error."""


class RequestWriter:
    """The only writer of this pod's `requested` beside users of kubectl.

    ``pod``: the newest state that is known. ``adopt``: take a newer one in. ``patience``: seconds for one wish, all
    attempts together.
    """

    def __init__(
        self,
        own: OwnPod,
        pod: Callable[[], Pod | None],
        adopt: Callable[[Pod], None],
        patience: float,
    ) -> None:
        self._own = own
        self._patience = patience
        self._pod = pod
        self._adopt = adopt
        self._highest = 0

    async def record(
        self, wish: Callable[[Requested | None], Wish], generation: int | None, *, anew: bool = False
    ) -> Requested:
        """Record a wish, ``anew`` also if it is the same; return what is recorded in the end. One call at a time.

        ``wish`` makes the wish from what is recorded at each attempt. Raises `StaleGeneration` or `BackendUnavailable`.
        """
        end = asyncio.get_running_loop().time() + self._patience
        attempt = _Attempt(wish, generation, anew)
        pause = FIRST_PAUSE
        while True:
            try:
                return await self._record_once(attempt)
            except Conflict as error:  # another client wrote the pod: at once again
                trouble: KubeError = error
            except KubeError as error:
                trouble = error
                # Later attempts may fail before they are sent; what this one did stays unknown.
                attempt.unknown |= attempt.sent is not None and (not isinstance(error, Unavailable) or error.sent)
                self._raise_if_final(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)
            if asyncio.get_running_loop().time() > end:
                raise self._gave_up(trouble, unknown=attempt.unknown)
            await self._refresh_if_possible()

    async def _record_once(self, attempt: _Attempt) -> Requested:
        """Record the wish on top of what the pod has now; raises `KubeError` if that fails, and `StaleGeneration`."""
        if self._pod() is None:
            self._adopt(await self._own.fetch())
        records = read(self._pod())
        self._highest = max(self._highest, records.newest)
        if attempt.sent is not None and records.requested == attempt.sent:
            return attempt.sent  # an answer was lost, not the wish
        if attempt.generation is not None and attempt.generation != records.generation:
            raise StaleGeneration(current=records.generation)
        after = advance(records, attempt.wish(records.requested), self._highest, anew=attempt.anew)
        if after != records.requested:
            attempt.sent = after
            await self._write(after)
            self._highest = after.generation
        return after

    async def _write(self, requested: Requested) -> None:
        version = objects.resource_version(self._pod())
        self._adopt(await self._own.write(requested, version))

    async def _refresh_if_possible(self) -> None:
        """Fetch the pod before the next attempt; if that is not possible, the next attempt finds out."""
        try:
            self._adopt(await self._own.fetch())
        except NotFound as error:
            self._raise_if_final(error)
        except KubeError as error:
            _log.debug("The pod can't be asked for: %s", error.message)

    def _raise_if_final(self, error: KubeError) -> None:
        """Raise for an error that does not get better by trying again."""
        if isinstance(error, NotFound):
            raise BackendUnavailable(self._own.gone(error)) from None
        if isinstance(error, Forbidden | Invalid):
            raise BackendUnavailable(
                f"{self._own.partner} did not accept the request, and nothing was changed: {error.message} "
                "If you should be allowed to ask for GPUs, tell your administrator."
            ) from None

    def _gave_up(self, error: KubeError, *, unknown: bool) -> BackendUnavailable:
        known = (
            "It is not known whether the request was recorded; look before you repeat it."
            if unknown
            else ("Nothing was changed. Try again in a moment.")
        )
        return BackendUnavailable(f"{self._own.partner} can't be asked now: {error.message} {known}")
