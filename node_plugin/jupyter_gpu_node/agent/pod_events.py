"""Latest states of this node's pods with a slot, as the API server reported them, for their followers. No I/O.

Level-triggered: a follower gets the newest state whenever it changes, and not each on the way to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from jupyter_gpu.kube.rules import objects
from jupyter_gpu.model.annotations import PREFIX


@dataclass(slots=True)
class _PodState:
    pod: Mapping[str, Any] | None = None
    gone: bool = False
    followers: set[asyncio.Event] = field(default_factory=set)


class PodEvents:
    """The states of pods by uid; the newest of each, whether it came by a watch or as the answer to a write."""

    def __init__(self) -> None:
        self.known: dict[str, _PodState] = {}
        """States by uid, of pods and of those that followers wait for."""
        self._trouble = ""

    def update(self, pod: Mapping[str, Any]) -> None:
        """Take over a pod's state, unless it is older than the known one."""
        known = self.known.setdefault(objects.uid(pod), _PodState())
        if known.pod is None or objects.newer(pod, known.pod):
            known.pod = summary(pod)
            _wake(known)

    def removed(self, uid: str) -> None:
        """Note that the pod is gone from the API server."""
        known = self.known.setdefault(uid, _PodState())
        known.gone = True
        _wake(known)

    def forget(self, uid: str) -> None:
        """Forget a pod of which nothing is left on this node."""
        known = self.known.get(uid)
        if known and known.followers:  # its container ends: nothing more will happen
            known.pod = None
        else:
            self.known.pop(uid, None)

    def trouble(self, why: str) -> None:
        """Set why the API server cannot be heard now; empty: it can."""
        self._trouble = why
        for known in self.known.values():
            _wake(known)

    async def follow(self, uid: str) -> AsyncIterator[Mapping[str, Any]]:
        """Yield the state of the pod, now and whenever it changes; without end."""
        known = self.known.setdefault(uid, _PodState())
        wake = asyncio.Event()
        known.followers.add(wake)
        last: Mapping[str, Any] | None = None
        try:
            while True:
                wake.clear()
                now = {"pod": known.pod, "gone": known.gone, "trouble": self._trouble}
                if now != last:
                    last = now
                    yield now
                await wake.wait()
        finally:
            known.followers.discard(wake)
            if not known.followers and known.pod is None:
                self.known.pop(uid, None)


def summary(pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return what its Jupyter server needs: identity, version, our annotations, whether it is being deleted."""
    metadata = pod["metadata"]
    annotations = metadata.get("annotations") or {}
    shown = {
        "namespace": objects.namespace(pod),
        "name": objects.name(pod),
        "uid": objects.uid(pod),
        "resourceVersion": objects.resource_version(pod),
        "annotations": {key: value for key, value in annotations.items() if key.startswith(PREFIX)},
    }
    if objects.deleting(pod):
        shown["deletionTimestamp"] = metadata["deletionTimestamp"]
    return {"metadata": shown}


def _wake(known: _PodState) -> None:
    for event in known.followers:
        event.set()
