"""The writing of the wish into the pod: exactly once, on top of what was really there."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_gpu.backends.kubernetes.rules.views import advance, read
from jupyter_gpu.kube import Conflict, Forbidden, Invalid, KubeError, NotFound, Unavailable
from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import REQUESTED, Requested, Wish, encode
from jupyter_gpu.model.errors import BackendUnavailable, StaleGeneration

from .own_pod import OwnPod

FIRST_PAUSE, LAST_PAUSE = 0.1, 2.0
"""Seconds between attempts while the API server is away."""

_log = logging.getLogger(__name__)

Pod = Mapping[str, Any]


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

        ``wish`` makes it of what is recorded now, whatever that is at each attempt.

        Raises `StaleGeneration` or
        `BackendUnavailable`.
        """
        end = asyncio.get_running_loop().time() + self._patience
        tried: Requested | None = None
        pause = FIRST_PAUSE
        while True:
            trouble: KubeError | None = None
            try:
                if self._pod() is None:
                    self._adopt(await self._own.look())
                records = read(self._pod())
                self._highest = max(self._highest, records.newest)
                if tried is not None and records.requested == tried:
                    return tried  # an answer was lost, not the wish
                if generation is not None and generation != records.generation:
                    raise StaleGeneration(current=records.generation)
                after = advance(records, wish(records.requested), self._highest, anew=anew)
                if after == records.requested:
                    return after
                tried = after
                await self._write(after)
                self._highest = after.generation
            except Conflict as error:
                trouble = error
            except KubeError as error:
                trouble = error
                _raise_if_final(error)
                await asyncio.sleep(pause)
                pause = min(pause * 2, LAST_PAUSE)
            else:
                return after
            if asyncio.get_running_loop().time() > end:
                raise _gave_up(trouble, sent=tried is not None)
            await self._look_if_possible()

    async def _write(self, requested: Requested) -> None:
        pod = self._pod()
        version = objects.resource_version(pod)
        annotations = {REQUESTED: encode(requested)}
        self._adopt(await self._own.patch({"resourceVersion": version, "annotations": annotations}))

    async def _look_if_possible(self) -> None:
        """Look at the pod before the next attempt; where that is not possible, the next attempt finds out."""
        try:
            self._adopt(await self._own.look())
        except NotFound as error:
            _raise_if_final(error)
        except KubeError as error:
            _log.debug("The pod can't be asked for: %s", error.message)


def _raise_if_final(error: KubeError) -> None:
    """Raise for an error that does not get better by trying again."""
    if isinstance(error, NotFound):
        raise BackendUnavailable(
            "This pod is being removed from the cluster: nothing can be changed any more."
        ) from None
    if isinstance(error, Forbidden | Invalid):
        raise BackendUnavailable(
            f"The cluster did not accept the request, and nothing was changed: {error.message} "
            "If you should be allowed to ask for GPUs, tell your administrator."
        ) from None


def _gave_up(error: KubeError | None, *, sent: bool) -> BackendUnavailable:
    why = error.message if error else "no answer"
    unknown = sent and (not isinstance(error, Unavailable) or error.sent)
    known = (
        "It is not known whether the request was recorded; look before you repeat it."
        if unknown
        else ("Nothing was changed. Try again in a moment.")
    )
    return BackendUnavailable(f"The cluster can't be asked now: {why} {known}")
