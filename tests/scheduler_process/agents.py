"""Plays the node plugins: follows every pod and does what an agent does, with its real `plan` and without devices.

Device rules are a set of uuids for each pod. A pod can keep GPUs open, as a busy kernel does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from jupyter_gpu.kube import Conflict, Kube, KubeError, NotFound, ObjectChange, Reflector, Selection
from jupyter_gpu.kube.rules import objects, paths
from jupyter_gpu.model.annotations import ALLOCATED, ATTACHED, decode_allocated, decode_attached, encode
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.gpu import Holder
from jupyter_gpu_node.agent.rules.plan import Observation, plan


class Agents:
    """The agents of all nodes, each pod served in its own task; `rules` are what each pod may open, by its uid."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube
        self._pods = Reflector(kube, Selection(paths.pods()), on_change=self._changed)
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: dict[str, asyncio.Event] = {}
        self.rules: dict[str, frozenset[str]] = {}
        self.open: dict[str, set[str]] = {}
        self.paused: set[str] = set()
        """Nodes whose agent does nothing."""
        self.broken: list[str] = []
        """Rules that did not hold, in words."""

    async def run(self) -> None:
        """Serve until cancelled."""
        try:
            await self._pods.run()
        finally:
            for task in self._tasks.values():
                task.cancel()
            await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def poke(self) -> None:
        """Look at every pod again."""
        for event in self._again.values():
            event.set()

    def _changed(self, change: ObjectChange) -> None:
        uid = objects.uid(change.object)
        if change.kind == "removed":
            self.rules.pop(uid, None)
            self.open.pop(uid, None)
            if task := self._tasks.pop(uid, None):
                task.cancel()
            self.poke()
        elif objects.node_name(change.object):
            self._again.setdefault(uid, asyncio.Event()).set()
            if uid not in self._tasks:
                self._tasks[uid] = asyncio.create_task(self._serve(uid))

    async def _serve(self, uid: str) -> None:
        while True:
            await self._again[uid].wait()
            self._again[uid].clear()
            pod = self._pods.objects.get(uid)
            if pod is None or objects.node_name(pod) in self.paused:
                continue
            try:
                await self._step(uid, pod)
            except (Conflict, NotFound):  # the watch tells what changed
                continue
            except KubeError:
                await asyncio.sleep(0.2)
                self._again[uid].set()

    async def _step(self, uid: str, pod: Mapping[str, Any]) -> None:
        try:
            allocated = _read(pod, ALLOCATED, decode_allocated)
        except InvalidAnnotation:
            return  # nothing new is opened
        attached = _read(pod, ATTACHED, decode_attached)
        if objects.finished(pod):
            allocated = None
        if allocated is None and attached is None:
            return
        before = self.rules.get(uid, frozenset())
        taken = {uuid for other, uuids in self.rules.items() if other != uid for uuid in uuids}
        taken |= {uuid for other, uuids in self.open.items() if other != uid for uuid in uuids}
        if allocated and any(share.uuid in taken and share.exclusive for share in allocated.shares):
            shares = tuple(share for share in allocated.shares if share.uuid not in taken)
            allocated = type(allocated)(allocated.observed_generation, shares)
            asyncio.get_running_loop().call_later(0.05, self._again[uid].set)
        first = plan(allocated, attached, Observation(not_provable=before, holders=self._holders(uid)))
        self.rules[uid] = before | first.allowed  # until its record says it: no other pod's is written before
        second = plan(allocated, attached, Observation(not_provable=first.allowed, holders=self._holders(uid)))
        usable = {share.uuid for share in second.attached.shares}
        after = replace(second.attached, open=tuple(sorted(usable & self.open.get(uid, set()))))
        if attached is None or after != attached:
            body = {"metadata": {"uid": uid, "annotations": {ATTACHED: encode(after)}}}
            path = paths.pod(objects.namespace(pod), objects.name(pod), "status")
            await self._kube.patch(path, body)
        self.rules[uid] = first.allowed

    def _holders(self, uid: str) -> dict[str, tuple[Holder, ...]]:
        return {uuid: (Holder(1, "python"),) for uuid in self.open.get(uid, ())}


def _read(pod: Mapping[str, Any], key: str, decode: Any) -> Any:
    text = objects.annotation(pod, key)
    if text is None:
        return None
    try:
        return decode(text)
    except InvalidAnnotation:
        if key == ALLOCATED:
            raise
        return None
