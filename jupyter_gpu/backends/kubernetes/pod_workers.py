"""News from the node plugin of the pod's workers on other nodes, and the way to say the pod's keys."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import ATTACHED, SERVICE, decode_attached
from jupyter_gpu.model.errors import BackendUnavailable

from .node_socket import Unreachable

if TYPE_CHECKING:  # loaded with the first worker, not when a server starts
    from jupyter_gpu.model.service import Peer, Service


class KnownWorkers:
    """The workers of one pod: a `PodWorkers`. ``put`` says its keys; it raises `Unreachable`."""

    def __init__(self, put: Callable[[Peer], Awaitable[None]]) -> None:
        self._put = put
        self._event = asyncio.Event()
        self.known = False
        """Whether the pod was seen."""
        self.service: Service | None = None
        """Its workers; None: it has none, or what is written of them cannot be read."""
        self.recorded: Peer | None = None
        """The keys that the node plugin has recorded as its own."""

    def see(self, pod: Mapping[str, Any]) -> None:
        """Take over a state of the pod."""
        before = (self.known, self.service, self.recorded)
        attached, _ = objects.decoded(pod, ATTACHED, decode_attached)
        self.known, self.service, self.recorded = True, _service(pod), attached.peer if attached else None
        if before != (self.known, self.service, self.recorded):
            self._event.set()

    async def changed(self) -> None:
        """Wait until something is new since the last call."""
        await self._event.wait()
        self._event.clear()

    async def say(self, peer: Peer) -> None:
        """Say the pod's keys. Raises `BackendUnavailable`."""
        try:
            await self._put(peer)
        except Unreachable as error:
            raise BackendUnavailable(f"The GPU program of this node does not take them: {error}.") from None


def _service(pod: Mapping[str, Any]) -> Service | None:
    if objects.annotation(pod, SERVICE) is None:
        return None
    from jupyter_gpu.model.service import decode_service

    return objects.decoded(pod, SERVICE, decode_service)[0]
