"""Our own pod at the API server, through the only right that a notebook has: to patch its status.

The answer to a patch is the whole pod, even if the patch changes nothing. So no right to read is needed.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from jupyter_gpu.kube import Conflict, Forbidden, Kube, KubeError, NotFound, Unauthorized
from jupyter_gpu.kube.errors import Invalid
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.errors import BackendUnavailable

from . import identity as identities
from .identity import Identity

FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0
"""Seconds between attempts while the API server is away."""
ANSWERS = (Conflict, Forbidden, Invalid, NotFound, Unauthorized)
"""Errors that show that the API server is there."""

Pod = Mapping[str, Any]

_log = logging.getLogger(__name__)


class OwnPod:
    """One pod, identified by name and, once it was fetched, by uid.

    ``trouble`` is called with the reason why the API server cannot be reached, and with "" when it can.
    """

    def __init__(self, kube: Kube, identity: Identity, trouble: Callable[[str], None] = lambda _: None) -> None:
        self._kube = kube
        self._identity = identity
        self._trouble = trouble
        self._lost = asyncio.Event()
        self.uid = identity.uid

    async def fetch(self) -> Pod:
        """Return the pod as it is now. Raises `KubeError`; `NotFound` also if another pod has its name by now."""
        try:
            return await self.patch({})
        except Conflict as error:
            if error.status != 422:
                raise
            raise NotFound(404, "Replaced", "Another pod has the name of this one.") from None

    async def patch(self, metadata: Mapping[str, Any]) -> Pod:
        """Merge ``metadata`` into the pod's and return the pod after that. Raises `KubeError`."""
        body = {"metadata": {**({"uid": self.uid} if self.uid else {}), **metadata}}
        try:
            pod = await self._kube.patch(paths.pod(self._identity.namespace, self._identity.name, "status"), body)
        except KubeError as error:
            if not isinstance(error, ANSWERS):
                self._trouble(error.message)
                self._lost.set()
            raise
        self._trouble("")
        self._lost.clear()
        self.uid = self.uid or objects.uid(pod)
        return pod

    async def fetch_first(self) -> Pod | None:
        """Return the pod at the start; ``None`` while the cluster cannot be asked.

        Raises `BackendUnavailable` if waiting would not help.
        """
        identity = self._identity
        try:
            return await self.fetch()
        except NotFound as error:
            replaced = error.reason == "Replaced"
            why = "that name belongs to another pod by now" if replaced else "there is none of that name"
            raise identities.mistaken(identity, why) from None
        except (Forbidden, Unauthorized) as error:
            raise BackendUnavailable(
                f"The cluster does not let this pod ask for GPUs ({error.message}). An administrator can allow it: "
                "bind the role for notebooks of jupyter-gpu's chart to the service account in namespace "
                f"{identity.namespace!r}."
            ) from None
        except KubeError as error:
            _log.warning("The cluster can't be asked yet: %s", error.message)
            return None

    async def reconnect(self, adopt: Callable[[Pod], None]) -> None:
        """Each time that the API server is lost, retry until it answers, and adopt the pod. Runs until cancelled."""
        while True:
            await self._lost.wait()
            pause = FIRST_PAUSE
            while self._lost.is_set():
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
                pause = min(pause * 2, LAST_PAUSE)
                try:
                    adopt(await self.fetch())
                except ANSWERS:
                    self._trouble("")
                    self._lost.clear()
                except KubeError as error:
                    _log.debug("The cluster can't be asked: %s", error.message)
