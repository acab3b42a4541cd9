"""The GPUs of this node: asked of the driver now and then, and told to the cluster when something changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jupyter_gpu.kube import Kube, KubeError, ObjectChange, Reflector
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.details import Reading
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.agent.inventory.rules import annotation, uplink_rate
from jupyter_gpu_node.gpus.registry import NO_ANSWER, Stock
from jupyter_gpu_node.gpus.rules.instances import Instances

from .own_gpus import OwnGpus
from .uplink import Uplink

FIRST_PAUSE, LAST_PAUSE = 0.2, 10.0
"""Seconds between two attempts to write."""

_log = logging.getLogger(__name__)


class Inventory:
    """What this node has. ``changed`` is called on the event loop when a GPU came, went, fell ill or got well.

    ``check`` tells of GPUs, and of why their driver does not answer, why a container could use none of them.
    """

    def __init__(
        self,
        stock: Stock,
        kube: Kube,
        node: str,
        seconds: float,
        uplink: Uplink | None = None,
        *,
        check: Callable[[tuple[Gpu, ...], str], str] = lambda _gpus, _silent: "",
        own: OwnGpus,
    ) -> None:
        self._stock = stock
        self._kube = kube
        self._name = node
        self._seconds = seconds
        self._check = check
        self._own = own
        self._uplink = uplink or Uplink()
        self._network: float | None = None
        self._measured = False
        self._held: dict[str, str] = {}
        self._owned: dict[str, str] = {}
        self._told: tuple[Gpu, ...] | None = None
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inventory")
        self._node = Reflector(kube, paths.nodes(), fields=f"metadata.name={node}", on_change=self._hear)
        self.node: Mapping[str, Any] | None = None
        """This Node as the API server told it last; None while it is not known, or gone."""
        self.changed: Callable[[], None] = lambda: None
        self.looked: Callable[[], object] = lambda: None
        """Called on the event loop after each look."""
        self.problem = ""
        """Why a container that is created now could use no GPU; as of the last look."""
        self.writes = 0

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, with what is wrong with each."""
        return annotation.sick(self._stock.gpus, {**self._held, **self._owned})

    @property
    def seen(self) -> Mapping[str, Gpu]:
        """By uuid, also those that are gone."""
        return self._stock.seen

    @property
    def instances(self) -> Instances:
        """Instances of this node's GPUs, ours or not, as far as the driver told."""
        return self._stock.instances

    @property
    def devices(self) -> frozenset[Device]:
        """All that device rules must cover."""
        return self._stock.devices

    @property
    def unhealthy(self) -> frozenset[str]:
        """Uuids of those that do not work, or are gone; not of those that only somebody else has open."""
        return self._stock.unhealthy

    @property
    def held_back(self) -> frozenset[str]:
        """Uuids of those that somebody has who should not: they are given to nobody."""
        return frozenset(self._held) | frozenset(self._owned)

    @property
    def withheld(self) -> frozenset[str]:
        """Uuids of GPUs that are never given out, whatever is decided: those held back, and those in MIG mode."""
        return self.held_back | self._stock.instances.divided

    @property
    def not_ours(self) -> frozenset[str]:
        """Uuids of those that somebody else gives away, too: who uses them is not ours to judge."""
        return frozenset(self._owned)

    def foreign(self, uuids: Collection[str]) -> frozenset[str]:
        """Those of ``uuids`` that this node never had."""
        return self._own.foreign(uuids)

    def hold_back(self, held: Mapping[str, str]) -> None:
        """Give these to nobody, and say why."""
        if dict(held) != self._held:
            self._held = dict(held)
            self._tell()

    def owned_by_others(self, owned: Mapping[str, str]) -> None:
        """These are given away by somebody else, too, and it is said by whom: to nobody here."""
        if dict(owned) != self._owned:
            self._owned = dict(owned)
            self._tell()

    async def begin(self) -> None:
        """The first look; raises `OSError` or `ValueError` if the GPUs cannot even be looked for."""
        await self.look()

    async def run(self) -> None:
        """Until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node.run())
            group.create_task(self._publish())
            group.create_task(self._measure())
            while True:
                await asyncio.sleep(self._seconds)
                await self.look()

    async def _measure(self) -> None:
        """Tell how much of the uplink is used, never more often than it is measured. No pod waits for that."""
        await asyncio.to_thread(self._uplink.use)
        while True:
            await asyncio.sleep(uplink_rate.SECONDS)
            now = uplink_rate.told(self._network, await asyncio.to_thread(self._uplink.use))
            self._measured = True
            if now != self._network:
                self._network = now
                self._wake.set()

    async def loads(self, uuids: frozenset[str]) -> Mapping[str, GpuLoad]:
        """What these do now."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._stock.loads, uuids)

    async def details(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """What is known of these beside their load."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._stock.details, uuids)

    def close(self) -> None:
        """Let go of the driver."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._stock.close()

    async def look(self) -> None:
        """Ask the driver now."""
        if await asyncio.get_running_loop().run_in_executor(self._thread, self._take):
            self._tell()
        self.looked()

    def _take(self) -> bool:
        changed = self._stock.take(now=True)
        self._own.learn(self._stock.seen)
        silent = self._stock.failed or not self._stock.gpus
        self.problem = self._check(self._stock.gpus, (self._stock.note or NO_ANSWER) if silent else "")
        return changed

    def _tell(self) -> None:
        self._wake.set()
        self.changed()

    def _hear(self, change: ObjectChange) -> None:
        self.node = None if change.kind == "removed" else change.object
        if not self._measured and self.node:  # what the process before us told is kept until we know better
            self._network = annotation.network_told(self.node)
        self._wake.set()

    async def _publish(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._wake.wait()
            self._wake.clear()
            body = annotation.patch(self.node, self.gpus, self._network) if self.node else None
            if body is None:
                continue
            try:
                self.node = await self._kube.patch(paths.node(self._name, "status"), body)
                self.writes += 1
                pause = FIRST_PAUSE
            except KubeError as error:
                _log.warning("The inventory of this node can't be written: %s It is tried again.", error.message)
                self._wake.set()
                await asyncio.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)
