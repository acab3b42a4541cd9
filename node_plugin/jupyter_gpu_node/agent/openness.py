"""The open GPUs of each pod, checked at intervals, so that a shrink takes an idle one and idle time is known.

The result is written to ``attached`` only if it changed and two scans in a row agree: a program that opens and closes a
GPU again and again causes no writes. It proves nothing; a release has a scan of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.processes import device_scan

from .pod import ManagedPod


class OpenGpus:
    """The repeated check of which GPUs the pods of a node have open. ``seconds`` between two checks; 0: never."""

    def __init__(self, pods: Mapping[str, ManagedPod], inventory: Inventory, seconds: float) -> None:
        self._pods = pods
        self._inventory = inventory
        self._seconds = seconds

    async def run(self) -> None:
        """Check repeatedly until cancelled."""
        while True:
            await asyncio.sleep(self._seconds or 3600)
            if self._seconds:
                await self.once()

    async def once(self) -> None:
        """Check every pod that has something once; a pod with a change to publish takes a step."""
        pods = dict(self._pods)
        asked = {uid: (pod.guard.group, self._gpus(pod)) for uid, pod in pods.items() if pod.guard}
        found = await asyncio.to_thread(open_of_each, asked)
        for uid, pod in pods.items():
            if pod.opened.observe(found.get(uid, frozenset())):
                pod.wake.set()

    def _gpus(self, pod: ManagedPod) -> list[Gpu]:
        known = self._inventory.seen
        shares = pod.attached.shares if pod.attached else ()
        return [known[share.uuid] for share in shares if share.uuid in known]


def open_of_each(pods: Mapping[str, tuple[Path, Sequence[Gpu]]]) -> dict[str, frozenset[str]]:
    """Return the uuids that the processes of each pod have open; ``pods``: the group and the GPUs of each."""
    return {uid: _open(group, gpus) for uid, (group, gpus) in pods.items() if gpus}


def _open(group: Path, gpus: Iterable[Gpu]) -> frozenset[str]:
    """Return the uuids that a process of the group has open, by descriptors alone: few programs close what they map.

    If the pod has more descriptors than a scan may read, what is left unread counts as not open.
    """
    seen = device_scan.open_descriptors(gpus, cgroup.processes(group))
    return frozenset(uuid for uuid, holders in seen.items() if holders)
