"""The pods of servers, read and changed for the servers' own tokens; nothing is kept between two requests."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Conflict, NotFound, ObjectStore, Unavailable
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.limits.owner import Owner
from jupyter_gpu.model.message import gettext
from jupyter_gpu_hub.rules import server_pod
from jupyter_gpu_hub.rules.refusals import Refusal
from jupyter_gpu_hub.rules.server_pod import HubServer, PodChange
from jupyter_gpu_hub.rules.usage import PodUse

from .copy import Copy

Pod = Mapping[str, Any]

RETRY = 2.0
"""Seconds after which it is worth asking again."""


class ServerPods:
    """Reads and writes through the one right that the service has on pods: to patch their status.

    The copy of all pods says where to look; what counts is the pod as the API server has it now. The answer to a patch
    that changes nothing is the whole pod. Methods raise `Refusal` and `KubeError`.
    """

    def __init__(self, store: ObjectStore, pods: Copy[PodUse], owned: Callable[[Owner], Sequence[PodUse]]) -> None:
        self._store = store
        self._pods = pods
        self._owned = owned

    async def read(self, server: HubServer) -> Pod:
        """Return the pod of a server as it is now."""
        if not self._pods.ready:
            raise Refusal(
                503, gettext("The cluster is not known yet; that takes a moment after the start."), retry_after=RETRY
            )
        known = [pod for pod in self._owned(server.owner) if pod.server == server.name]
        if len(known) > server_pod.MAX_PODS:
            raise server_pod.several((f"{pod.namespace}/{pod.name}" for pod in known), server)
        found = [pod for use in known if (pod := await self._fetch(use)) is not None]
        try:
            return server_pod.the_one(found, server)
        except Refusal as refusal:
            trouble = self._pods.reflector.trouble
            if refusal.status == 404 and trouble:  # the copy may be out of date
                raise Refusal(
                    503, gettext("The cluster can't be followed now: %1", trouble), retry_after=RETRY
                ) from None
            raise

    async def write(self, server: HubServer, change: PodChange) -> Pod:
        """Write a request into the pod of a server; return the pod after that.

        A refusal with ``details.unknown`` came too late to tell whether it was written.
        """
        pod = await self.read(server)
        server_pod.check(pod, change.requested)
        faults.point("hub:checked")
        try:
            written = await self._store.patch(_status(objects.namespace(pod), objects.name(pod)), change.patch(pod))
        except Conflict:  # or it was replaced
            raise Refusal(
                409, gettext("The pod was changed meanwhile, so nothing was written. Look at it again.")
            ) from None
        except Unavailable as error:
            raise Refusal(503, error.message, retry_after=RETRY, unknown=error.sent) from None
        faults.point("hub:requested")
        return written

    async def _fetch(self, use: PodUse) -> Pod | None:
        try:
            return await self._store.patch(_status(use.namespace, use.name), {"metadata": {}})
        except NotFound:
            return None


def _status(namespace: str, name: str) -> str:
    return paths.pod(namespace, name, "status")
