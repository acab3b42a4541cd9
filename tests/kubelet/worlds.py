"""One-line worlds: a kubelet, our plugin beside it, pods as the API server tells them."""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node.kubelet.gate_mount import Gate
from jupyter_gpu_node.kubelet.plugin import DevicePlugin
from jupyter_gpu_node.kubelet.rules.slots import PodRef
from jupyter_gpu_node.kubelet.service import Service
from jupyter_gpu_node.kubelet.slot_owners import SlotOwners
from jupyter_gpu_node.settings import SLOT, Settings, Simulated
from tests.devices import first_minor

from .stand_in import Kubelet, running

NODE = "node1"
FIRST_MINOR = first_minor()


def gpus(count: int = 4) -> tuple[Gpu, ...]:
    """Simulated GPUs."""
    return tuple(
        Gpu(
            f"GPU-{i}",
            i,
            "Simulated GPU",
            2**30,
            Device(4, FIRST_MINOR + i),
            f"/dev/jupyter-gpu/gpu{i}",
            simulated=True,
        )
        for i in range(count)
    )


def pod(uid: str, name: str, *, container: str = "main", node: str = NODE, namespace: str = "team", **more: Any) -> Any:
    """A pod with a slot, as the API server has it."""
    limits = {"resources": {"limits": {SLOT: "1"}}}
    return {
        "metadata": {"uid": uid, "namespace": namespace, "name": name, **more.pop("metadata", {})},
        "spec": {"nodeName": node, "containers": [{"name": container, **limits}], **more.pop("spec", {})},
        "status": {"phase": "Running", **more.pop("status", {})},
    }


@dataclass
class Guard:
    """A guard that records the pods it should close; refuses or takes its time if asked to."""

    closed: list[tuple[PodRef, str, str]] = field(default_factory=list)
    refuse: str = ""
    seconds: float = 0.0

    async def before_start(self, pod: PodRef, container: str, slot: str) -> None:
        """Guard as the agent does."""
        await asyncio.sleep(self.seconds)
        if self.refuse:
            raise OSError(self.refuse)
        self.closed.append((pod, container, slot))


@dataclass
class World:
    """All of it."""

    settings: Settings
    kubelet: Kubelet
    guard: Guard
    pods: dict[str, Any]
    """Pods by uid, as the watch reported them."""
    server: list[Any] | None
    """Pods that the API server answers with; None: it is away."""
    gpus: tuple[Gpu, ...] = field(default_factory=gpus)
    owners: SlotOwners = field(init=False)
    plugin: DevicePlugin = field(init=False)
    task: asyncio.Task[None] = field(init=False)

    def __post_init__(self) -> None:
        self.begin()

    def begin(self) -> None:
        """Start the plugin as a new process would: it knows only what lies on disk."""
        self.owners = SlotOwners(self.settings, lambda: self.pods, self.fetch)
        gate = Gate(self.settings.state, lambda: Path(__file__))  # any file does
        gate.install()
        service = Service(self.settings, lambda: self.gpus, self.guard, self.owners, gate)
        self.plugin = DevicePlugin(self.settings, service)
        self.task = asyncio.create_task(self.plugin.run())

    async def end(self) -> None:
        """Stop the plugin."""
        self.task.cancel()
        await asyncio.wait([self.task])

    async def fetch(self, namespace: str, name: str) -> Mapping[str, Any] | None:
        """Ask the API server."""
        if self.server is None:
            raise ConnectionError("connection refused")
        wanted = (namespace, name)
        return next((p for p in self.server if (p["metadata"]["namespace"], p["metadata"]["name"]) == wanted), None)

    def add(self, uid: str, name: str, **more: Any) -> None:
        """Add a pod that the API server knows; with ``seen=False`` the watch does not show it yet."""
        seen = more.pop("seen", True)
        made = pod(uid, name, **more)
        if seen:
            self.pods[uid] = made
        if self.server is not None:
            self.server.append(made)


@contextlib.contextmanager
def home() -> Iterator[Path]:
    """A directory with a short name: paths of sockets have at most 107 characters."""
    path = Path(tempfile.mkdtemp(prefix="jg-", dir="/tmp"))
    yield path
    shutil.rmtree(path)


def settings(base: Path, **more: Any) -> Settings:
    """Settings of a plugin whose world is below ``base``."""
    made = Settings(
        slots=8,
        kubelet=base / "kubelet",
        state=base / "state",
        run=base / "run",
        simulated=Simulated(4, FIRST_MINOR),
        reconcile_seconds=0.2,
        node=NODE,
    )
    made.device_directory.mkdir(parents=True, exist_ok=True)
    for gpu in gpus():
        (made.device_directory / f"gpu{gpu.index}").touch()
    return replace(made, **more)


@contextlib.asynccontextmanager
async def world(*, start: bool = True, **more: Any) -> AsyncIterator[World]:
    """A kubelet and a plugin, which know each other when this begins, unless ``start`` is false."""
    with home() as base:
        async with running(base / "kubelet") as kubelet:
            made = World(settings(base, **more), kubelet, Guard(), {}, [])
            try:
                if start:
                    await kubelet.plugin()
                yield made
            finally:
                await made.end()
