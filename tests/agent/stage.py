"""A node without a kubelet: the node plugin as its own process, and pods that the tests make themselves.

A pod is a Pod object of a real API server and a control group named as the kubelet does, below a private top, with
processes that follow commands.
"""

import asyncio
import contextlib
import ctypes
import json
import os
import secrets
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
import threading
import urllib.request
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

from jupyter_gpu.common import faults
from jupyter_gpu.kube import Kube, KubeError, kubeconfig
from jupyter_gpu.kube.rules import paths
from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    INVENTORY,
    Allocated,
    Attached,
    decode_attached,
    decode_inventory,
    encode,
)
from jupyter_gpu.model.gpu import Gpu, GpuShare
from jupyter_gpu_node.devices import cgroup
from jupyter_gpu_node.gpus import simulated
from tests.cluster.testbed import ControlPlane, ports, until
from tests.cluster.testbed.commands import Hopeless
from tests.devices import EACH, first_minor
from tests.node.conftest import Child

T = TypeVar("T")
FIRST_MINOR, COUNT = first_minor(), EACH
PATIENCE = float(os.environ.get("PATIENCE", "60"))
SLOT = "jupyter-gpu.io/slot"


CAPABILITIES = {2: "DAC_READ_SEARCH", 5: "KILL", 12: "NET_ADMIN", 19: "SYS_PTRACE", 27: "MKNOD", 39: "BPF"}
CAPABILITIES |= {40: "CHECKPOINT_RESTORE"}
"""Those that the plugin's container has, by the kernel's number."""


def confine() -> None:
    """Give up all other capabilities, for this process and what it starts."""
    libc = ctypes.CDLL(None, use_errno=True)
    for number in range(41):
        if number not in CAPABILITIES:
            libc.prctl(24, number, 0, 0, 0)  # PR_CAPBSET_DROP


class Api:
    """Calls to the API server from tests that are no coroutines."""

    def __init__(self, config: Path) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.kube = Kube(kubeconfig(config), deadline=60)
        self.run(self.kube.__aenter__())

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Result of a coroutine."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    def close(self) -> None:
        self.run(self.kube.__aexit__(None, None, None))
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class Pod:
    """One pod and its control group."""

    def __init__(self, node: "Node", name: str, body: dict[str, Any]) -> None:
        self.node = node
        self.name = name
        self.uid = body["metadata"]["uid"]
        self.namespace = body["metadata"]["namespace"]
        self.group = node.top / "kubepods" / "besteffort" / f"pod{self.uid}"
        self.children: list[Child] = []

    # -- processes

    def make_group(self) -> None:
        """Make the control group, as the kubelet does before the first container."""
        (self.group / "container").mkdir(parents=True)

    def spawn(self, inside: bool = True) -> Child:
        """A process of the pod."""
        child = Child()
        self.children.append(child)
        if inside:
            cgroup.enter(self.group / "container", child.pid)
        return child

    def remove_group(self) -> None:
        """All its processes end."""
        for child in self.children:
            child.end()
        self.children.clear()
        if self.group.exists():
            until(lambda: not cgroup.populated(self.group), what="the pod to be empty", every=0.01)
            for directory in [*sorted(self.group.rglob("*"), reverse=True), self.group]:
                if directory.is_dir():
                    directory.rmdir()

    # -- the API server

    @property
    def path(self) -> str:
        return paths.pod(self.namespace, self.name)

    def json(self) -> dict[str, Any]:
        return self.node.api.run(self.node.api.kube.get(self.path))

    def patch_status(self, body: dict[str, Any]) -> None:
        self.node.api.run(self.node.api.kube.patch(self.path + "/status", body))

    def runs(self) -> None:
        """Report that the pod runs, as the kubelet does."""
        status = {"name": "main", "ready": True, "restartCount": 0, "image": "none", "imageID": ""}
        state = {"state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}}}
        self.patch_status({"status": {"phase": "Running", "containerStatuses": [{**status, **state}]}})

    def allocate(self, *shares: str | tuple[str, int] | GpuShare, generation: int = 1) -> None:
        """Allocate shares, as the scheduler does."""
        whole = [(share, 1000) if isinstance(share, str) else share for share in shares]
        decided = Allocated(generation, tuple(GpuShare(*share) for share in whole))
        self.annotate(ALLOCATED, encode(decided))

    def annotate(self, key: str, text: str | None) -> None:
        self.patch_status({"metadata": {"annotations": {key: text}}})

    @property
    def attached(self) -> Attached | None:
        text = (self.json()["metadata"].get("annotations") or {}).get(ATTACHED)
        return decode_attached(text) if text else None

    @property
    def has(self) -> list[str]:
        return [share.uuid for share in self.attached.shares] if self.attached else []

    @property
    def draining(self) -> list[str]:
        return [item.uuid for item in self.attached.draining] if self.attached else []

    def until_has(self, *uuids: str, draining: tuple[str, ...] = ()) -> None:
        """Until exactly these are attached, and those draining."""

        def so() -> bool:
            attached = self.attached
            shares = {share.uuid for share in attached.shares} if attached else set()
            drains = {item.uuid for item in attached.draining} if attached else set()
            return shares == set(uuids) and drains == set(draining)

        try:
            until(so, PATIENCE, what=f"{uuids} attached and {draining} draining", every=0.02)
        except Exception as error:
            raise AssertionError(f"{error}\nattached: {self.attached}\n{self.node.log()[-3000:]}") from None

    def events(self) -> list[str]:
        """Reasons of its events."""
        found = self.node.api.run(
            self.node.api.kube.list(paths.events("default"), fields=f"involvedObject.uid={self.uid}")
        )
        return [item["reason"] for item in found.items]

    def delete(self) -> None:
        """From the API server, at once; the group stays."""
        self.node.api.run(self.node.api.kube.delete(self.path, uid=self.uid, grace=0))


class Node:
    """One node and its plugin."""

    def __init__(self, plane: ControlPlane, api: Api, **settings: Any) -> None:
        self.plane = plane
        self.api = api
        self.name = f"node-{secrets.token_hex(4)}"
        self.folder = Path(tempfile.mkdtemp(prefix="jga-", dir="/tmp"))
        self.bpffs = self.folder / "bpf"
        self.bpffs.mkdir()
        subprocess.run(["mount", "-t", "bpf", "bpf", str(self.bpffs)], check=True)
        unified = cgroup.mounts().unified
        assert unified is not None
        self.top = Path(unified.mount) / f"jga-{self.name}"
        (self.top / "kubepods" / "besteffort").mkdir(parents=True)
        self.devices = Path(tempfile.mkdtemp(prefix="jga-", dir="/dev"))
        self.devices.chmod(0o755)
        for index in range(COUNT):
            path = self.devices / f"gpu{index}"
            os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(4, FIRST_MINOR + index))
            path.chmod(0o666)
        self.nodes = tuple(self.devices / f"gpu{index}" for index in range(COUNT))
        self.uuids = tuple(simulated.uuid_of(index, self.name) for index in range(COUNT))
        (self.port,) = ports.free(1)
        (self.folder / "kubelet" / "device-plugins").mkdir(parents=True)
        self.settings = {
            "kubelet": str(self.folder / "kubelet"),
            "state": str(self.folder / "state"),
            "run": str(self.folder / "run"),
            "pins": str(self.bpffs / "jupyter-gpu"),
            "simulated": {"count": COUNT, "firstMinor": FIRST_MINOR},
            "auditSeconds": 0.3,
            "inventorySeconds": 0.3,
            "openSeconds": 0.3,
            "port": self.port,
            "kubeconfig": str(plane.kubeconfig),
            **settings,
        }
        self.file = self.folder / "settings.json"
        self.file.write_text(json.dumps(self.settings))
        self.process: subprocess.Popen[bytes] | None = None
        self.pods: list[Pod] = []
        self._count = 0
        self.log_file = self.folder / "log"
        body = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": self.name}}
        api.run(api.kube.create(paths.nodes(), body))

    # -- the plugin

    def start(self, crash: str = "", wait: bool = True) -> None:
        environment = {**os.environ, "NODE_NAME": self.name, "POD_IP": "127.0.0.1"}
        if crash:
            environment[faults.VARIABLE] = crash
        with self.log_file.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "jupyter_gpu_node", "--settings", str(self.file)],
                env=environment,
                preexec_fn=confine,
                stdout=log,
                stderr=log,
            )
        if wait:
            until(self.synced, what=f"the node plugin to know its pods\n{self.log()[-2000:]}", every=0.05)

    def synced(self) -> bool:
        """Whether it is past its start: only the kubelet is missing."""
        if self.process is None or self.process.poll() is not None:
            raise RuntimeError(f"the plugin ended: {self.log()[-3000:]}")
        return (
            "GPU" in self.get("/metrics")
            and "not known" not in self.get("/readyz")
            and "hands" not in self.get("/readyz")
        )

    def get(self, path: str) -> str:
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}")
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return str(answer.read().decode())
        except urllib.error.HTTPError as error:
            with error:
                return error.read().decode()

    def kill(self) -> None:
        """Kill the plugin, as the out-of-memory killer would."""
        assert self.process is not None
        self.process.kill()
        self.process.wait()
        self.process = None

    def died(self) -> None:
        """Until it has died of itself by SIGKILL."""
        assert self.process is not None
        until(lambda: self.process and self.process.poll() is not None, what="the plugin to die", every=0.02)
        assert self.process.returncode == -signal.SIGKILL, self.log()[-3000:]
        self.process = None

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(30)
            self.process = None

    def log(self) -> str:
        return self.log_file.read_text(errors="replace") if self.log_file.exists() else ""

    # -- pods

    def pod(
        self,
        *,
        group: bool = True,
        slot: bool = True,
        namespace: str = "default",
        app: str = "",
        privileged: bool = False,
    ) -> Pod:
        """A pod bound to this node, as the kubelet has it right before its first container."""
        self._count += 1
        name = f"{self.name}-{self._count}"
        resources = {"limits": {SLOT: "1"}} if slot else {}
        context = {"privileged": privileged}
        body = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": namespace, "labels": {"app": app}},
            "spec": {
                "nodeName": self.name,
                "containers": [{"name": "main", "image": "none", "resources": resources, "securityContext": context}],
                "tolerations": [{"operator": "Exists"}],
            },
        }
        made = Pod(self, name, self.api.run(self.api.kube.create(paths.pods(namespace), body)))
        self.pods.append(made)
        if group:
            made.make_group()
        return made

    def running(self) -> tuple[Pod, Child]:
        """A closed pod with one process."""
        pod = self.pod()
        pod.annotate("jupyter-gpu.io/test", "go")  # the plugin hears of it once it has a group
        child = pod.spawn()
        until(lambda: child.probe(*self.nodes) == "-" * COUNT, what="the pod to be closed", every=0.01)
        return pod, child

    @property
    def json(self) -> dict[str, Any]:
        return self.api.run(self.api.kube.get(paths.node(self.name)))

    @property
    def inventory(self) -> tuple[Gpu, ...]:
        text = (self.json["metadata"].get("annotations") or {}).get(INVENTORY)
        return decode_inventory(text) if text else ()

    def events(self) -> list[str]:
        """Reasons of the node's events."""
        found = self.api.run(self.api.kube.list(paths.events("default"), fields="involvedObject.kind=Node"))
        return [item["reason"] for item in found.items if item["involvedObject"]["name"] == self.name]

    def pins(self) -> list[str]:
        directory = self.bpffs / "jupyter-gpu"
        return sorted(path.name for path in directory.iterdir()) if directory.exists() else []

    def clear(self) -> None:
        """Remove all pods; the GPUs are free again when this returns."""
        for pod in self.pods:
            pod.remove_group()
            pod.delete()
        gone = {pod.uid for pod in self.pods}
        self.pods.clear()
        if self.process is not None:
            try:
                until(lambda: self._forgot(gone), PATIENCE, "pods to be forgotten")
            except Hopeless:
                raise
            except Exception as error:
                raise AssertionError(f"{error}: {gone} {self.pins()} {self.get('/metrics')}\n{self.log()}") from None

    def _forgot(self, gone: set[str]) -> bool:
        """Return whether nothing is left of these pods. Raises Hopeless where the plugin has ended."""
        if self.process is not None and self.process.poll() is not None:
            raise Hopeless(f"The plugin ended with status {self.process.returncode}:\n{self.log()[-6000:]}")
        return not any(name.split("_")[0] in gone for name in self.pins())

    def close(self) -> None:
        """Leave nothing behind."""
        with contextlib.suppress(Exception):
            self.clear()
        if self.process is not None:
            self.kill()
        for pod in self.pods:
            pod.remove_group()
        for directory in [*sorted((path for path in self.top.rglob("*") if path.is_dir()), reverse=True), self.top]:
            directory.rmdir()
        subprocess.run(["umount", str(self.bpffs)], check=True)
        shutil.rmtree(self.folder)
        shutil.rmtree(self.devices)
        with contextlib.suppress(KubeError):
            self.api.run(self.api.kube.delete(paths.node(self.name)))
