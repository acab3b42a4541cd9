"""Samples for a pod: figures of the node and of the pod's own GPUs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.details import Reading, named
from jupyter_gpu.model.gpu import Gpu, Holder
from jupyter_gpu.model.gpu_kind import gpu_kind
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.rules import node_totals
from jupyter_gpu_node.devices.guarded_pod import GuardedPod
from jupyter_gpu_node.gpus import simulated_load
from jupyter_gpu_node.holders.scanner import inner_pid
from jupyter_gpu_node.processes import device_scan, proc

from .pod import ManagedPod

FRESH = {"sample": 0.5, "details": 2.0, "totals": 2.0}
"""Seconds for which an answer is reused: a pod that asks without pause costs no more than one that asks so often."""


class Samples:
    """The answers of the pods' sockets."""

    def __init__(
        self,
        node: str,
        inventory: Inventory,
        pods: Mapping[str, ManagedPod],
        shares: Callable[[str], Awaitable[Mapping[str, Any]]],
        *,
        simulated: bool,
    ) -> None:
        self._node = node
        self._inventory = inventory
        self._pods = pods
        self._shares = shares
        self._simulated = simulated
        self._kept: dict[tuple[str, str], tuple[float, Mapping[str, Any]]] = {}
        self._before: dict[str, simulated_load.LoadReading] = {}

    async def answer(self, uid: str, what: str) -> Mapping[str, Any]:
        """Answer a pod's question. ``node``: this node, its GPUs, the pod's shares.

        ``sample``: load, users and kinds of that pod's GPUs. ``details``: their limits, rates and memory by process.
        ``totals``: how much of the node is free, and how many pods wait for it. Nothing identifies other pods.
        """
        if what == "node":
            gpus = [gpu.to_json() for gpu in self._inventory.gpus]
            shares = await self._shares(uid)
            return {"node": self._node, "simulated": self._simulated, "gpus": gpus, "shares": shares}
        now = time.monotonic()
        self._kept = {key: item for key, item in self._kept.items() if now - item[0] < FRESH[key[1]]}
        if (uid, what) not in self._kept:
            self._kept[uid, what] = (now, await self._take(uid, what))
        return self._kept[uid, what][1]

    async def _take(self, uid: str, what: str) -> Mapping[str, Any]:
        pod = self._pods.get(uid)
        if what == "details":
            return await self._details(pod)
        if what == "totals":
            return node_totals.totals(self._inventory.gpus, self._pods.values()).to_json()
        return await self._sample(pod)

    async def _sample(self, pod: ManagedPod | None) -> Mapping[str, Any]:
        if pod is None:
            return {"loads": {}, "holders": {}, "kinds": {}}
        mine, seen = await self._users_of(pod)
        holders = {uuid: tuple(_holder(one) for one in some) for uuid, some in seen.items()}
        for item in pod.attached.draining if pod.attached else ():  # of other pods only what was found already
            foreign = tuple(holder for holder in item.holders if holder.foreign)
            holders[item.uuid] = (*holders.get(item.uuid, ()), *foreign)
        loads = await self._simulated_loads(pod, mine, seen) if self._simulated else await self._inventory.loads(mine)
        return {
            "loads": {uuid: load.to_json() for uuid, load in loads.items()},
            "holders": {uuid: [holder.to_json() for holder in some] for uuid, some in holders.items()},
            "kinds": {uuid: gpu_kind(gpu).to_json() for uuid, gpu in self._inventory.seen.items() if uuid in mine},
        }

    async def _details(self, pod: ManagedPod | None) -> Mapping[str, Any]:
        if pod is None:
            return {"gpus": {}}
        mine, seen = await self._users_of(pod)
        readings = await self._simulated_details(pod, seen) if self._simulated else await self._inventory.details(mine)
        holders = {uuid: {one.pid: _holder(one) for one in seen.get(uuid, ())} for uuid in mine}
        return {
            "gpus": {uuid: named(readings[uuid], holders[uuid]).to_json() for uuid in sorted(mine & readings.keys())}
        }

    async def _users_of(self, pod: ManagedPod) -> tuple[frozenset[str], Mapping[str, tuple[proc.ProcessInfo, ...]]]:
        """Return the uuids of the GPUs that the pod has or gives back, and its processes that have them open."""
        mine = frozenset(pod.holding.has) | frozenset(pod.holding.drains)
        gpus = [gpu for uuid, gpu in self._inventory.seen.items() if uuid in mine]
        return mine, await asyncio.to_thread(_users_of_gpus, gpus, pod.guard) if pod.guard and gpus else {}

    async def _simulated_details(
        self, pod: ManagedPod, seen: Mapping[str, tuple[proc.ProcessInfo, ...]]
    ) -> Mapping[str, Reading]:
        sample = await self.answer(pod.uid, "sample")
        loads = {uuid: GpuLoad.from_json(load) for uuid, load in sample["loads"].items()}
        now = await asyncio.to_thread(simulated_load.read, {one for some in seen.values() for one in some})
        return simulated_load.details(seen, loads, now)

    async def _simulated_loads(
        self, pod: ManagedPod, mine: frozenset[str], seen: Mapping[str, Iterable[proc.ProcessInfo]]
    ) -> Mapping[str, GpuLoad]:
        now = await asyncio.to_thread(simulated_load.read, {one for some in seen.values() for one in some})
        self._before = {uid: reading for uid, reading in self._before.items() if uid in self._pods}
        before, self._before[pod.uid] = self._before.get(pod.uid), now
        return simulated_load.loads({uuid: seen.get(uuid, ()) for uuid in mine}, before, now)


def _users_of_gpus(gpus: list[Gpu], guard: GuardedPod) -> Mapping[str, tuple[proc.ProcessInfo, ...]]:
    return device_scan.open_descriptors(gpus, guard.processes())


def _holder(process: proc.ProcessInfo) -> Holder:
    return Holder(inner_pid(process.pid), strict.printable(process.command, 256))
