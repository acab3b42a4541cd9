"""Samples for a pod: figures of the node and of the pod's own GPUs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.details import Reading, named
from jupyter_gpu.model.gpu import Gpu, Holder
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.rules import node_totals
from jupyter_gpu_node.devices.guarded_pod import GuardedPod
from jupyter_gpu_node.gpus import simulated_load
from jupyter_gpu_node.holders.scanner import inner_pid
from jupyter_gpu_node.processes import proc
from jupyter_gpu_node.processes.rules.scan_budget import EACH, Budget

from .pod import Member

FRESH = {"sample": 0.5, "details": 2.0, "totals": 2.0}
"""Seconds for which an answer is good: a pod that asks without pause costs no more than one that asks so often."""


class Samples:
    """The answers of the pods' sockets."""

    def __init__(
        self,
        node: str,
        inventory: Inventory,
        members: Mapping[str, Member],
        shares: Callable[[str], Awaitable[Mapping[str, Any]]],
        *,
        simulated: bool,
    ) -> None:
        self._node = node
        self._inventory = inventory
        self._members = members
        self._shares = shares
        self._simulated = simulated
        self._kept: dict[tuple[str, str], tuple[float, Mapping[str, Any]]] = {}
        self._before: dict[str, simulated_load.Reading] = {}

    async def answer(self, uid: str, what: str) -> Mapping[str, Any]:
        """Answer a pod's question. ``node``: this node, its GPUs, the pod's shares.

        ``sample``: load and users of that pod's GPUs; ``details``: limits, rates and memory by process of the same;
        ``totals``: what of the node is free, and how many wait for it. Nothing identifies other pods.
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
        member = self._members.get(uid)
        if what == "details":
            return await self._details(member)
        if what == "totals":
            return node_totals.totals(self._inventory.gpus, self._members.values()).to_json()
        return await self._sample(member)

    async def _sample(self, member: Member | None) -> Mapping[str, Any]:
        if member is None:
            return {"loads": {}, "holders": {}}
        mine, seen = await self._look(member)
        holders = {uuid: tuple(_told(one) for one in some) for uuid, some in seen.items()}
        for item in member.attached.draining if member.attached else ():  # of other pods only what was found already
            foreign = tuple(holder for holder in item.holders if holder.foreign)
            holders[item.uuid] = (*holders.get(item.uuid, ()), *foreign)
        loads = await self._pretended(member, mine, seen) if self._simulated else await self._inventory.loads(mine)
        return {
            "loads": {uuid: load.to_json() for uuid, load in loads.items()},
            "holders": {uuid: [holder.to_json() for holder in some] for uuid, some in holders.items()},
        }

    async def _details(self, member: Member | None) -> Mapping[str, Any]:
        if member is None:
            return {"gpus": {}}
        mine, seen = await self._look(member)
        readings = (
            await self._pretended_details(member, seen) if self._simulated else await self._inventory.details(mine)
        )
        told = {uuid: {one.pid: _told(one) for one in seen.get(uuid, ())} for uuid in mine}
        return {"gpus": {uuid: named(readings[uuid], told[uuid]).to_json() for uuid in sorted(mine & readings.keys())}}

    async def _look(self, member: Member) -> tuple[frozenset[str], Mapping[str, tuple[proc.Process, ...]]]:
        """Return the uuids of the GPUs that the pod has or gives back, and its processes that have them open."""
        mine = frozenset(member.holding.has) | frozenset(member.holding.drains)
        gpus = [gpu for uuid, gpu in self._inventory.seen.items() if uuid in mine]
        return mine, await asyncio.to_thread(_seen, gpus, member.guard) if member.guard and gpus else {}

    async def _pretended_details(
        self, member: Member, seen: Mapping[str, tuple[proc.Process, ...]]
    ) -> Mapping[str, Reading]:
        sample = await self.answer(member.uid, "sample")
        loads = {uuid: GpuLoad.from_json(load) for uuid, load in sample["loads"].items()}
        now = await asyncio.to_thread(simulated_load.read, {one for some in seen.values() for one in some})
        return simulated_load.details(seen, loads, now)

    async def _pretended(
        self, member: Member, mine: frozenset[str], seen: Mapping[str, Iterable[proc.Process]]
    ) -> Mapping[str, GpuLoad]:
        now = await asyncio.to_thread(simulated_load.read, {one for some in seen.values() for one in some})
        self._before = {uid: reading for uid, reading in self._before.items() if uid in self._members}
        before, self._before[member.uid] = self._before.get(member.uid), now
        return simulated_load.loads({uuid: seen.get(uuid, ()) for uuid in mine}, before, now)


def _seen(gpus: list[Gpu], guard: GuardedPod) -> Mapping[str, tuple[proc.Process, ...]]:
    budget = Budget(EACH)
    return proc.scan(proc.targets(gpus), guard.processes(), mappings=False, budgets=lambda _: budget).holders


def _told(process: proc.Process) -> Holder:
    return Holder(inner_pid(process.pid), strict.printable(process.command, 256))
