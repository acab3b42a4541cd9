"""The kubelet side of the node plugin as a process of its own: ``python -m tests.kubelet.host SETTINGS``.

Its guard is the smallest that is one: it closes the pod's control group for good. What it is told it writes to
``calls`` in the plugin's directory, what the comparison of all slots finds to ``reconciled``; a file ``refuse`` there
makes it refuse with the words of the file.
"""

from __future__ import annotations

import asyncio
import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

from jupyter_gpu.kube import Kube, Reflector, Selection, credentials
from jupyter_gpu.kube.errors import NotFound
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.gpu import Device, Gpu
from jupyter_gpu_node import supervision
from jupyter_gpu_node.devices import bpf
from jupyter_gpu_node.devices.rules import device_program
from jupyter_gpu_node.devices.rules.device_rules import DeviceRules
from jupyter_gpu_node.kubelet.plugin import DevicePlugin
from jupyter_gpu_node.kubelet.rules.slots import PodRef, Reconciled
from jupyter_gpu_node.kubelet.service import Service
from jupyter_gpu_node.kubelet.slot_owners import SlotOwners
from jupyter_gpu_node.settings import Settings, load

GROUPS = "/sys/fs/cgroup"


class Host:
    """All parts of the process."""

    def __init__(self, settings: Settings, kube: Kube) -> None:
        self.settings = settings
        self.kube = kube
        self.gpus = _make_gpus(settings)
        self.closed = bpf.load(
            device_program.compile(DeviceRules.closed(gpu.device for gpu in self.gpus if gpu.device)), "test"
        )
        self.pods = Reflector(
            kube, Selection(paths.pods(), fields=f"spec.nodeName={settings.node}"), on_change=lambda _: None
        )
        self.owners = SlotOwners(settings, lambda: self.pods.objects, self.fetch)
        self.plugin = DevicePlugin(settings, Service(settings, lambda: self.gpus, self, self.owners))

    async def before_start(self, pod: PodRef, container: str, slot: str) -> None:
        """Close the pod's group, unless asked to refuse."""
        refuse = self.settings.state / "refuse"
        if refuse.exists():
            raise PermissionError(refuse.read_text())
        group = await asyncio.to_thread(_group, pod.uid)
        if len(bpf.attached(group)) == 0:
            bpf.attach(group, self.closed)
        with (self.settings.state / "calls").open("a") as file:
            file.write(json.dumps([pod.uid, pod.name, container, slot]) + "\n")

    async def fetch(self, namespace: str, name: str) -> Any:
        """Ask the API server."""
        try:
            return await self.kube.get(paths.pod(namespace, name))
        except NotFound:
            return None

    async def compare(self) -> None:
        """Again and again, once the pods are known."""
        await self.pods.synced.wait()
        await self.owners.watch(self.report)

    def report(self, found: Reconciled) -> None:
        """Write it down."""
        unguarded = [[pod.name, container] for pod, container in found.unguarded]
        known = {slot: owner.pod.name for slot, owner in self.owners.known.items()}
        draft = self.settings.state / "reconciled.new"
        draft.write_text(json.dumps({"unguarded": unguarded, "known": known}))
        draft.replace(self.settings.state / "reconciled")


def _group(uid: str) -> Path:
    # os.walk: others' groups come and go meanwhile, which rglob does not bear
    groups = (Path(folder) for folder, _, _ in os.walk(GROUPS) if folder.endswith(f"/pod{uid}"))
    return next(path for path in groups if (path / "cgroup.controllers").exists())


def _make_gpus(settings: Settings) -> tuple[Gpu, ...]:
    assert settings.simulated is not None
    settings.device_directory.mkdir(parents=True, exist_ok=True)
    made = []
    for index in range(settings.simulated.count):
        device, path = Device(4, settings.simulated.first_minor + index), settings.device_directory / f"gpu{index}"
        if not path.exists():
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(device.major, device.minor))
            path.chmod(0o666)
        made.append(
            Gpu(f"GPU-{index}", index, "Simulated GPU", 2**30, device, f"/dev/jupyter-gpu/gpu{index}", simulated=True)
        )
    return tuple(made)


async def main() -> None:
    """Until SIGTERM."""
    settings = load(Path(sys.argv[1]), os.environ)
    async with Kube(credentials.load(settings.kubeconfig)) as kube:
        host = Host(settings, kube)
        await supervision.supervise({"plugin": host.plugin.run(), "pods": host.pods.run(), "slots": host.compare()})


if __name__ == "__main__":
    asyncio.run(main())
