"""The GPUs of this node: read from the driver at intervals, and published to the cluster when something changed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from jupyter_gpu.kube import Kube, KubeError, ObjectChange, Reflector, Selection
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.details import Reading
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu.model.view import GpuLoad
from jupyter_gpu_node.agent.inventory.rules import annotation, uplink_rate
from jupyter_gpu_node.gpus.registry import NO_ANSWER, Registry
from jupyter_gpu_node.gpus.rules.instances import Instances

from .own_gpus import OwnGpus
from .uplink import Uplink

FIRST_PAUSE, LAST_PAUSE = 0.2, 10.0
"""Seconds between two attempts to write."""

_log = logging.getLogger(__name__)


class Inventory:
    """The GPUs of this node. ``changed`` is called on the event loop when a GPU appears, vanishes, fails or recovers.

    ``check``: returns why a container could use none of these GPUs, given also why their driver does not answer.
    ``limits``: tells whether a container that is made now can take GPU memory only through the gate.
    """

    def __init__(
        self,
        registry: Registry,
        kube: Kube,
        node: str,
        seconds: float,
        uplink: Uplink | None = None,
        *,
        check: Callable[[tuple[Gpu, ...], str], str] = lambda _gpus, _silent: "",
        limits: Callable[[], bool] = lambda: False,
        own: OwnGpus,
    ) -> None:
        self._registry = registry
        self._kube = kube
        self._name = node
        self._seconds = seconds
        self._check = check
        self._own = own
        self._limits = limits
        self._limited = False
        self._uplink = uplink or Uplink()
        self._network: float | None = None
        self._speed: int | None = None
        self._measured = False
        self.held: dict[str, str] = {}
        self._owned: dict[str, str] = {}
        self._wake = asyncio.Event()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="inventory")
        self._node = Reflector(
            kube, Selection(paths.nodes(), fields=f"metadata.name={node}"), on_change=self._on_node_change
        )
        self.node: Mapping[str, Any] | None = None
        """This Node as the API server reported it last; None while it is not known, or gone."""
        self.changed: Callable[[], None] = lambda: None
        self.on_refresh: Callable[[], object] = lambda: None
        """Called on the event loop after each refresh."""
        self.problem = ""
        """Why a container that is created now could use no GPU; as of the last refresh."""
        self.writes = 0

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All GPUs, with what is wrong with each."""
        gpus = annotation.with_gate(self._registry.gpus) if self._limited else self._registry.gpus
        return annotation.with_problems(gpus, {**self.held, **self._owned})

    @property
    def seen(self) -> Mapping[str, Gpu]:
        """By uuid, also those that are gone."""
        return self._registry.seen

    @property
    def instances(self) -> Instances:
        """Instances of this node's GPUs, ours or not, as far as the driver reported them."""
        return self._registry.instances

    @property
    def buses(self) -> Mapping[str, str]:
        """PCI addresses by uuid, without the function, of those of which they are known."""
        return self._registry.buses()

    @property
    def devices(self) -> frozenset[Device]:
        """All that device rules must cover."""
        return self._registry.devices

    @property
    def unhealthy(self) -> frozenset[str]:
        """Uuids of GPUs that do not work, or are gone; a GPU that is only held back is not among them."""
        return self._registry.unhealthy

    @property
    def held_back(self) -> frozenset[str]:
        """Uuids of GPUs that a process has open without a right: they are given to no pod."""
        return frozenset(self.held) | frozenset(self._owned)

    @property
    def withheld(self) -> frozenset[str]:
        """Uuids of GPUs that are never given out, whatever is decided: those held back, and those in MIG mode."""
        return self.held_back | self._registry.instances.divided

    @property
    def not_ours(self) -> frozenset[str]:
        """Uuids of GPUs that another plugin gives away, too: the audit leaves their users alone."""
        return frozenset(self._owned)

    def foreign(self, uuids: Collection[str]) -> frozenset[str]:
        """Return those of ``uuids`` that this node never had."""
        return self._own.foreign(uuids)

    def hold_back(self, held: Mapping[str, str]) -> None:
        """Give these GPUs to no pod; ``held``: the reason by uuid."""
        if dict(held) != self.held:
            self.held = dict(held)
            self._notify()

    def owned_by_others(self, owned: Mapping[str, str]) -> None:
        """Give these GPUs to no pod here: another plugin gives them away, too; ``owned`` says which."""
        if dict(owned) != self._owned:
            self._owned = dict(owned)
            self._notify()

    async def begin(self) -> None:
        """Ask the driver for the first time; raises `OSError` or `ValueError` if the GPUs cannot even be looked for."""
        await self.refresh()

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as group:
            group.create_task(self._node.run())
            group.create_task(self._publish())
            group.create_task(self._measure())
            while True:
                await asyncio.sleep(self._seconds)
                await self.refresh()

    async def _measure(self) -> None:
        """Publish how much of the uplink is used, never more often than it is measured. No pod waits for that."""
        await asyncio.to_thread(self._uplink.use)
        while True:
            await asyncio.sleep(uplink_rate.SECONDS)
            use = await asyncio.to_thread(self._uplink.use)
            now = (uplink_rate.published(self._network, use), self._uplink.speed)
            self._measured = True
            if now != (self._network, self._speed):
                self._network, self._speed = now
                self._wake.set()

    async def loads(self, uuids: frozenset[str]) -> Mapping[str, GpuLoad]:
        """Return the present load of these GPUs."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._registry.loads, uuids)

    async def details(self, uuids: frozenset[str]) -> Mapping[str, Reading]:
        """Return what is known of these GPUs beside their load."""
        return await asyncio.get_running_loop().run_in_executor(self._thread, self._registry.details, uuids)

    def close(self) -> None:
        """Close the connection to the driver."""
        self._thread.shutdown(wait=False, cancel_futures=True)
        self._registry.close()

    async def refresh(self) -> None:
        """Ask the driver now."""
        if await asyncio.get_running_loop().run_in_executor(self._thread, self._take):
            self._notify()
        self.on_refresh()

    def _take(self) -> bool:
        changed = self._registry.take(now=True)
        self._own.learn(self._registry.seen)
        silent = self._registry.failed or not self._registry.gpus
        self.problem = self._check(self._registry.gpus, (self._registry.note or NO_ANSWER) if silent else "")
        before, self._limited = self._limited, self._limits()
        return changed or self._limited != before

    def _notify(self) -> None:
        self._wake.set()
        self.changed()

    def _on_node_change(self, change: ObjectChange) -> None:
        self.node = None if change.kind == "removed" else change.object
        if not self._measured and self.node:  # the value of an earlier process is kept until we know better
            self._network, self._speed = annotation.published_uplink(self.node)
        self._wake.set()

    async def _publish(self) -> None:
        pause = FIRST_PAUSE
        while True:
            await self._wake.wait()
            self._wake.clear()
            body = annotation.patch(self.node, self.gpus, self._network, self._speed) if self.node else None
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
