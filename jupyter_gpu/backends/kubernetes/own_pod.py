"""Our own pod: its records as they are now, and the one write that a server makes. `OwnPod` is what every way has in
common; `ClusterPod` is the way with the pod's own token.
"""

from __future__ import annotations

import asyncio
import logging
import random
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from jupyter_gpu.kube import Conflict, Forbidden, Kube, KubeError, NotFound, Unauthorized
from jupyter_gpu.kube.errors import Invalid
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import REQUESTED, Requested, encode
from jupyter_gpu.model.errors import BackendUnavailable

from . import identity as identities
from .identity import Identity

FIRST_PAUSE, LAST_PAUSE = 0.1, 5.0
"""Seconds between attempts while the other side is away."""
ANSWERS: tuple[type[KubeError], ...] = (Conflict, Forbidden, Invalid, NotFound, Unauthorized)
"""Errors that show that the other side is there."""

Pod = Mapping[str, Any]
Tell = Callable[[str], None]

_log = logging.getLogger(__name__)


class OwnPod(ABC):
    """One pod, identified once it was read by its uid.

    ``trouble`` is called with the reason why the other side cannot be reached, and with "" when it can.
    """

    partner = "The cluster"
    """The other side, as sentences begin."""
    answers = ANSWERS

    def __init__(self, trouble: Tell, uid: str = "") -> None:
        self._trouble = trouble
        self._lost = asyncio.Event()
        self.uid = uid

    async def fetch(self) -> Pod:
        """Return the pod as it is now. Raises `KubeError`; `NotFound` also if another pod has its name by now."""
        return await self._asked(self._read())

    async def write(self, requested: Requested, version: str) -> Pod:
        """Write a request for one version of the pod; return the pod after that.

        Raises `KubeError`, and `GpuError` for a request that is refused.
        """
        return await self._asked(self._write(requested, version))

    async def fetch_first(self) -> Pod | None:
        """Return the pod at the start; ``None`` while the other side cannot be asked.

        Raises `BackendUnavailable` if waiting would not help.
        """
        try:
            return await self.fetch()
        except KubeError as error:
            if (hopeless := self._hopeless(error)) is not None:
                raise hopeless from None
            _log.warning("%s can't be asked yet: %s", self.partner, error.message)
            return None

    async def reconnect(self, adopt: Callable[[Pod], None]) -> None:
        """Each time that the other side is lost, retry until it answers, and adopt the pod. Runs until cancelled."""
        while True:
            await self._lost.wait()
            pause = FIRST_PAUSE
            while self._lost.is_set():
                await asyncio.sleep(pause * random.uniform(0.5, 1))  # noqa: S311 - no secret
                pause = min(pause * 2, LAST_PAUSE)
                try:
                    adopt(await self.fetch())
                except self.answers:
                    self._trouble("")
                    self._lost.clear()
                except KubeError as error:
                    _log.debug("%s can't be asked: %s", self.partner, error.message)

    def gone(self, error: NotFound) -> str:  # noqa: ARG002 - other ways have more to say
        """Return the sentence for a pod that is not there any more."""
        return "This pod is being removed from the cluster: nothing can be changed any more."

    @abstractmethod
    async def _read(self) -> Pod: ...

    @abstractmethod
    async def _write(self, requested: Requested, version: str) -> Pod: ...

    @abstractmethod
    def _hopeless(self, error: KubeError) -> BackendUnavailable | None:
        """Return the error of a start that waiting would not help; ``None`` where it would."""

    async def _asked(self, answer: Awaitable[Pod]) -> Pod:
        try:
            pod = await answer
        except KubeError as error:
            if not isinstance(error, self.answers):
                self._trouble(error.message)
                self._lost.set()
            raise
        self._trouble("")
        self._lost.clear()
        self.uid = self.uid or objects.uid(pod)
        return pod


class ClusterPod(OwnPod):
    """The pod at the API server, through the only right that a notebook has: to patch its status.

    The answer to a patch is the whole pod, even if the patch changes nothing. So no right to read is needed.
    """

    def __init__(self, kube: Kube, identity: Identity, trouble: Tell = lambda _: None) -> None:
        super().__init__(trouble, identity.uid)
        self._kube = kube
        self._identity = identity

    async def _read(self) -> Pod:
        try:
            return await self._patch({})
        except Conflict as error:
            if error.status != 422:
                raise
            raise NotFound(404, "Replaced", "Another pod has the name of this one.") from None

    async def _write(self, requested: Requested, version: str) -> Pod:
        return await self._patch({"resourceVersion": version, "annotations": {REQUESTED: encode(requested)}})

    async def _patch(self, metadata: Mapping[str, Any]) -> Pod:
        """Merge ``metadata`` into the pod's."""
        body = {"metadata": {**({"uid": self.uid} if self.uid else {}), **metadata}}
        return await self._kube.patch(paths.pod(self._identity.namespace, self._identity.name, "status"), body)

    def _hopeless(self, error: KubeError) -> BackendUnavailable | None:
        match error:
            case NotFound():
                replaced = error.reason == "Replaced"
                why = "that name belongs to another pod by now" if replaced else "there is none of that name"
                return identities.mistaken(self._identity, why)
            case Forbidden() | Unauthorized():
                return BackendUnavailable(
                    f"The cluster does not let this pod ask for GPUs ({error.message}). An administrator can allow it: "
                    "bind the role for notebooks of jupyter-gpu's chart to the service account in namespace "
                    f"{self._identity.namespace!r}."
                )
        return None
