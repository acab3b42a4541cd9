"""What a pod is told of the node and of its own GPUs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from jupyter_gpu.model import strict
from jupyter_gpu.model.gpu import Gpu, Holder
from jupyter_gpu.model.view import GpuLoad

from . import pretended_load, proc
from .guarded_pod import GuardedPod
from .holders import inner_pid
from .inventory import Inventory
from .look_rules import EACH, Budget
from .member import Member

FRESH = 0.5
"""Seconds for which a sample is good: a pod that asks without pause costs no more than one that asks twice a second."""


class Samples:
    """Answers of the pods' sockets."""

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
        self._kept: dict[str, tuple[float, Mapping[str, Any]]] = {}
        self._before: dict[str, pretended_load.Reading] = {}

    async def answer(self, uid: str, what: str) -> Mapping[str, Any]:
        """``node``: this node, its GPUs, the pod's shares; ``sample``: load and users of that pod's GPUs."""
        if what == "node":
            gpus = [gpu.to_json() for gpu in self._inventory.gpus]
            shares = await self._shares(uid)
            return {"node": self._node, "simulated": self._simulated, "gpus": gpus, "shares": shares}
        now = time.monotonic()
        self._kept = {key: item for key, item in self._kept.items() if now - item[0] < FRESH}
        if uid not in self._kept:
            self._kept[uid] = (now, await self._sample(self._members.get(uid)))
        return self._kept[uid][1]

    async def _sample(self, member: Member | None) -> Mapping[str, Any]:
        if member is None:
            return {"loads": {}, "holders": {}}
        mine = frozenset(member.holding.has) | frozenset(member.holding.drains)
        gpus = [gpu for uuid, gpu in self._inventory.seen.items() if uuid in mine]
        seen = await asyncio.to_thread(_seen, gpus, member.guard) if member.guard and gpus else {}
        holders = {uuid: tuple(_told(one) for one in some) for uuid, some in seen.items()}
        for item in member.attached.draining if member.attached else ():  # of other pods only what was found already
            foreign = tuple(holder for holder in item.holders if holder.foreign)
            holders[item.uuid] = (*holders.get(item.uuid, ()), *foreign)
        loads = await self._pretended(member, mine, seen) if self._simulated else await self._inventory.loads(mine)
        return {
            "loads": {uuid: {"utilisation": load.utilisation, "memory": load.memory} for uuid, load in loads.items()},
            "holders": {uuid: [holder.to_json() for holder in some] for uuid, some in holders.items()},
        }

    async def _pretended(
        self, member: Member, mine: frozenset[str], seen: Mapping[str, Iterable[proc.Process]]
    ) -> Mapping[str, GpuLoad]:
        now = await asyncio.to_thread(pretended_load.read, {one for some in seen.values() for one in some})
        self._before = {uid: reading for uid, reading in self._before.items() if uid in self._members}
        before, self._before[member.uid] = self._before.get(member.uid), now
        return pretended_load.loads({uuid: seen.get(uuid, ()) for uuid in mine}, before, now)


def _seen(gpus: list[Gpu], guard: GuardedPod) -> Mapping[str, tuple[proc.Process, ...]]:
    budget = Budget(EACH)
    return proc.scan(proc.targets(gpus), guard.processes(), mappings=False, budgets=lambda _: budget).holders


def _told(process: proc.Process) -> Holder:
    return Holder(inner_pid(process.pid), strict.printable(process.command, 256))
