"""The open GPUs of each pod: looked at now and then, so that a shrink takes one that rests.

Written in ``attached``, and only when it changed and two looks in a row found it: a program that opens and closes a GPU
again and again causes no writes. It proves nothing; a release has a look of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from pathlib import Path

from jupyter_gpu.model.gpu import Gpu

from . import cgroup, proc
from .inventory import Inventory
from .member import Member


class Openness:
    """The looks at the open GPUs of all pods of a node. ``seconds`` between two looks; 0: never."""

    def __init__(self, members: Mapping[str, Member], inventory: Inventory, seconds: float) -> None:
        self._members = members
        self._inventory = inventory
        self._seconds = seconds

    async def run(self) -> None:
        """Look repeatedly until cancelled."""
        while True:
            await asyncio.sleep(self._seconds or 3600)
            if self._seconds:
                await self.once()

    async def once(self) -> None:
        """Look once at every pod that has something; a pod with news to publish takes a step."""
        for member in list(self._members.values()):
            known = self._inventory.seen
            shares = member.attached.shares if member.attached else ()
            gpus = [known[share.uuid] for share in shares if share.uuid in known]
            found = frozenset[str]()
            if gpus and member.guard:
                found = await asyncio.to_thread(_open, member.guard.group, gpus)
            if member.glimpsed(found):
                member.wake.set()


def _open(group: Path, gpus: Iterable[Gpu]) -> frozenset[str]:
    """Return the uuids that a process of the group has open, by descriptors alone: few programs close what they map."""
    seen = proc.scan(proc.targets(gpus), cgroup.processes(group), mappings=False)
    return frozenset(uuid for uuid, holders in seen.holders.items() if holders)
