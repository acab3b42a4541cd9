"""Use of GPUs by each pod, checked at intervals: so a shrink takes idle ones, and idle time is known.

A change is written to ``attached`` as `rules.use_class` says. It proves nothing; a release has a scan of its own.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.agent.inventory.inventory import Inventory
from jupyter_gpu_node.agent.rules.use_class import UseScan
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.processes import device_scan
from jupyter_gpu_node.processes.proc import ProcessInfo

from .pod import ManagedPod
from .use_reader import OpenGpus, UseReader


class UseClasses:
    """The repeated check of which GPUs the pods of a node have open, and use. ``seconds`` between two; 0: never.

    ``rest``: seconds without use after which an open GPU rests.
    """

    def __init__(
        self, pods: Mapping[str, ManagedPod], inventory: Inventory, use: UseReader, seconds: float, rest: float
    ) -> None:
        self._pods = pods
        self._inventory = inventory
        self._use = use
        self._seconds = seconds
        self._rest = rest

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
        opened = await asyncio.to_thread(open_of_each, asked)
        used = await self._use.read(opened)
        now = time.monotonic()
        for uid, pod in pods.items():
            scan = UseScan(now, frozenset(opened.get(uid, ())), used.get(uid, ()))
            if pod.use.observe(scan, self._rest, pod.attached.rests if pod.attached else ()):
                pod.wake.set()

    def _gpus(self, pod: ManagedPod) -> list[Gpu]:
        known = self._inventory.seen
        shares = pod.attached.shares if pod.attached else ()
        return [known[share.uuid] for share in shares if share.uuid in known]


def open_of_each(pods: Mapping[str, tuple[Path, Sequence[Gpu]]]) -> OpenGpus:
    """Return, by pod and uuid, the processes that have a GPU open; ``pods``: the group and the GPUs of each."""
    return {uid: _open(group, gpus) for uid, (group, gpus) in pods.items() if gpus}


def _open(group: Path, gpus: Iterable[Gpu]) -> Mapping[str, tuple[ProcessInfo, ...]]:
    """Return the processes of the group by GPU, by descriptors alone: few programs close what they map.

    If the pod has more descriptors than a scan may read, what is left unread counts as not open.
    """
    seen = device_scan.open_descriptors(gpus, cgroup.processes(group))
    return {uuid: holders for uuid, holders in seen.items() if holders}
