"""Follow our own pod, and what the cluster tells about it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from typing import Any, Protocol

from jupyter_gpu.kube import Change, Forbidden, Kube, KubeError, NotFound, Reflector, Unauthorized, objects, paths
from jupyter_gpu.model.errors import BackendUnavailable

from . import identity as identities
from .identity import Identity

GRACE = 0.5
"""Seconds that the API server may be away before the user is told."""

_log = logging.getLogger(__name__)


class Saw(Protocol):
    """Called with what is new: ``pod``, ``gone``, ``events``, ``cluster_trouble``."""

    def __call__(self, **changes: Any) -> None:
        """Take it in."""


class Watch:
    """One pod, known by name and, as soon as it was seen, by uid."""

    def __init__(self, kube: Kube, who: Identity, saw: Saw) -> None:
        self._kube = kube
        self._who = who
        self._uid = who.uid
        self._saw = saw
        self._events: Reflector | None = None
        self._alarm: asyncio.TimerHandle | None = None
        self._pod = Reflector(
            kube,
            paths.pods(who.namespace),
            fields=f"metadata.name={who.name}",
            on_change=self._changed,
            on_trouble=self._trouble,
        )
        self.synced = self._pod.synced
        """Set when the pod was listed for the first time."""

    async def find(self) -> Mapping[str, Any] | None:
        """The pod now; ``None`` while the cluster cannot be asked.

        Raises :class:`~jupyter_gpu.model.errors.BackendUnavailable` where waiting would not help.
        """
        who = self._who
        try:
            pod = await self._kube.get(paths.pod(who.namespace, who.name))
        except NotFound:
            raise identities.mistaken(who, "there is none of that name") from None
        except (Forbidden, Unauthorized) as error:
            raise BackendUnavailable(
                f"The cluster does not let this pod read itself ({error.message}). An administrator can allow it: bind "
                f"the role for notebooks of jupyter-gpu's chart to the service account in namespace {who.namespace!r}."
            ) from None
        except KubeError as error:
            _log.warning("The cluster can't be asked yet: %s", error.message)
            return None
        if self._uid and objects.uid(pod) != self._uid:
            raise identities.mistaken(who, "that name belongs to another pod by now")
        self._uid = objects.uid(pod)
        return pod

    async def follow_pod(self) -> None:
        """Until cancelled."""
        try:
            await self._pod.run()
        finally:
            self._silence()

    async def follow_events(self) -> None:
        """Until cancelled, or at once over where this pod may not read events: they are a help, no more."""
        while not self._uid:
            await self.synced.wait()
            await asyncio.sleep(GRACE)
        path, fields = paths.events(self._who.namespace), f"involvedObject.uid={self._uid}"
        try:
            await self._kube.list(path, fields=fields, resource_version="0")
        except (Forbidden, Unauthorized):
            _log.info("This pod may not read events: what the cluster says of it is not shown.")
            return
        except KubeError:
            pass  # the reflector goes on trying
        self._events = Reflector(self._kube, path, fields=fields, on_change=self._told)
        await self._events.run()

    def _changed(self, change: Change) -> None:
        uid = objects.uid(change.object)
        self._uid = self._uid or uid
        if uid != self._uid:
            return  # another pod of our name: we are on our way out
        self._saw(pod=change.object, **({"gone": True} if change.kind == "removed" else {}))

    def _told(self, _: Change) -> None:
        assert self._events is not None
        self._saw(events=tuple(self._events.objects.values()))

    def _trouble(self, message: str) -> None:
        """A watch that is cut and goes on at once is nothing to speak of."""
        self._silence()
        if message:
            self._alarm = asyncio.get_running_loop().call_later(GRACE, lambda: self._saw(cluster_trouble=message))
        else:
            self._saw(cluster_trouble="")

    def _silence(self) -> None:
        if self._alarm:
            self._alarm.cancel()
            self._alarm = None
