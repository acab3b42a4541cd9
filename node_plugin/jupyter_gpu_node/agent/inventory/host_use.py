"""Measures how much of this machine's CPU, memory and disk is in use, and has its Node say so when that changes."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from jupyter_gpu.kube import Kube, KubeError
from jupyter_gpu.kube.rules import paths
from jupyter_gpu_node.agent.inventory.rules import annotation, host_use
from jupyter_gpu_node.agent.inventory.rules.host_use import READINGS, HostReading, HostUse

_log = logging.getLogger(__name__)


class HostFiles:
    """The files that say it. ``disk``: a folder on the file system of ephemeral storage.

    ``proc``: what a container sees there is the whole machine's.
    """

    def __init__(self, disk: Path, proc: Path = Path("/proc")) -> None:
        self._disk = disk
        self._proc = proc

    def read(self) -> HostReading:
        """Return what they say now. Blocks for as long as the file system does."""
        return HostReading(time.monotonic(), self._cpu(), self._memory(), self._space())

    def _cpu(self) -> host_use.CpuTime | None:
        try:
            return host_use.cpu_time((self._proc / "stat").read_text())
        except (OSError, ValueError):
            return None

    def _memory(self) -> float | None:
        try:
            return host_use.memory_in_use((self._proc / "meminfo").read_text())
        except (OSError, ValueError):
            return None

    def _space(self) -> float | None:
        try:
            found = os.statvfs(self._disk)
        except OSError:
            return None
        return host_use.part_in_use(found.f_blocks - (found.f_bfree - found.f_bavail), found.f_bavail)


class HostUses:
    """The repeated measurement. ``node``: returns the Node as it is known now; ``None``: it is not.

    ``seconds``: the window over which the use is averaged; 0: nothing is told, and what was told is taken back.
    """

    def __init__(
        self, kube: Kube, name: str, node: Callable[[], Mapping[str, Any] | None], files: HostFiles, seconds: float
    ) -> None:
        self._kube = kube
        self._name = name
        self._node = node
        self._files = files
        self._seconds = seconds
        self._use: HostUse | None = None
        self.writes = 0

    async def run(self) -> None:
        """Measure repeatedly until cancelled."""
        while True:
            await self.once()
            await asyncio.sleep(self._seconds / READINGS or 60)

    async def once(self) -> None:
        """Measure once, and write what is not there yet; a write that failed is tried again the next time."""
        node = self._node()
        if node is None:
            return
        if self._use is None:  # what an earlier process told is kept until more is known
            self._use = HostUse(self._seconds, annotation.published_use(node))
        if self._seconds:
            self._use.observe(await asyncio.to_thread(self._files.read))
        body = annotation.use_patch(node, self._use.told if self._seconds else None)
        if body is None:
            return
        try:
            await self._kube.patch(paths.node(self._name, "status"), body)
            self.writes += 1
        except KubeError as error:
            _log.warning("The use of this node can't be written: %s It is tried again.", error.message)
