"""The keys by which kernels of this server reach the workers of its pod: a pair for each worker, in memory alone.

The public keys are said to the pod's node plugin, again and again until they are recorded. A server that starts anew
has other keys; connections that are open go on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from jupyter_gpu.backends.base import PodWorkers
from jupyter_gpu.model.errors import BackendUnavailable

if TYPE_CHECKING:  # loaded with the first worker, not when a server starts
    from .rules.pairing import KeyPair

FIRST_PAUSE, LAST_PAUSE = 0.5, 10.0
"""Seconds until keys are said again that were not recorded."""
_log = logging.getLogger(__name__)


class PairingKeys:
    """The key pairs of one server. ``workers``: what its pod knows of its workers.

    ``told`` is called after each change of that.
    """

    def __init__(self, workers: PodWorkers, told: Callable[[], None] = lambda: None) -> None:
        self._workers, self._told = workers, told
        self._pairs: dict[str, KeyPair] = {}
        self._task = asyncio.get_running_loop().create_task(self._run())

    def ways(self) -> dict[str, Any]:
        """Return the workers that can be reached, with their keys and ours."""
        if not self._pairs:
            return {"workers": []}
        from .rules import pairing

        return pairing.ways(self._workers.service, self._pairs)

    async def stop(self) -> None:
        """Make no more keys; those that there are end with the process."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        pause = FIRST_PAUSE
        while True:
            again = self._workers.known and not await self._say()
            self._told()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause if again else None):
                    await self._workers.changed()
            pause = min(2 * pause, LAST_PAUSE) if again else FIRST_PAUSE

    async def _say(self) -> bool:
        """Make the keys that are missing, and say all; return whether they are recorded."""
        service, recorded = self._workers.service, self._workers.recorded
        if not (service and service.workers) and not self._pairs and recorded is None:
            return True  # as in almost every pod: nothing is loaded for it
        import zmq

        from .rules import pairing

        self._pairs = pairing.kept(service, self._pairs)
        for name in pairing.lacking(service, self._pairs):
            public, secret = zmq.curve_keypair()
            self._pairs[name] = pairing.KeyPair(public.decode(), secret.decode())
        peer = pairing.own(self._pairs)
        if peer.keys == (recorded.keys if recorded else ()) and not (recorded and recorded.key):
            return True
        try:
            await self._workers.say(peer)
        except BackendUnavailable as error:
            _log.warning("The keys for the workers of this pod are not recorded yet: %s", error)
        return False
