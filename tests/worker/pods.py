"""A worker's program as in a pod: a real socket of a node plugin, and a test in the scheduler's place."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import zmq

from jupyter_gpu.model.annotations import (
    ALLOCATED,
    ATTACHED,
    REQUESTED,
    SERVICE,
    WORKER,
    Attached,
    decode_attached,
    encode,
)
from jupyter_gpu.model.errors import InvalidAnnotation
from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu.model.gpu_kind import gpu_kind
from jupyter_gpu.model.service import Peer, WorkerIdentity, WorkerService
from jupyter_gpu.remote.first_process import WorkerAddress
from jupyter_gpu.remote.rules import control
from jupyter_gpu.worker import node
from jupyter_gpu.worker.standby import VARIABLE
from jupyter_gpu_node.agent.pod_events import PodEvents
from jupyter_gpu_node.kubelet.pod_socket import NAME, PodSockets
from tests.shares.world import until

SLOT = "slot-0000"
KEYS = {"service": SERVICE, "worker": WORKER, "attached": ATTACHED, "allocated": ALLOCATED, "requested": REQUESTED}
PORTS = 2 + (control.CHANNELS + 1) * control.MAX_KERNELS


def free_ports() -> int:
    """Return the first of so many free ports in a row as a worker has."""
    while True:
        first = random.randrange(20_000, 30_000)  # below those that the system gives to connections
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in range(first, first + PORTS):
                held.enter_context(socket.socket()).bind(("0.0.0.0", port))
            return first


class Plugin:
    """A node plugin, as far as the socket of one pod shows it."""

    def __init__(self, folder: Path, *, takes: bool = True) -> None:
        self.folder, self.takes = folder, takes
        self.path = folder / SLOT / NAME
        self.said: list[Peer] = []
        self.gpus: tuple[Gpu, ...] = ()
        self.loads: dict[str, Any] = {}
        self.samples = 0
        """The number of questions for the loads."""
        self.annotations: dict[str, str] = {WORKER: encode(WorkerIdentity("u", "w1"))}
        self._version = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.start()

    def start(self, *, known: bool = True) -> None:
        """Serve the pod, which a plugin that just started may not know yet."""

        async def answer(_uid: str, what: str) -> Mapping[str, Any]:
            if what == "sample":
                self.samples += 1
                kinds = {one.uuid: gpu_kind(one).to_json() for one in self.gpus}
                return {"loads": self.loads, "holders": {}, "kinds": kinds}
            gpus = [gpu.to_json() for gpu in self.gpus]
            return {"node": "n", "simulated": True, "gpus": gpus, "shares": {"problem": "", "taken": {}}}

        async def serve() -> None:
            self._events = PodEvents()
            if known:
                self._publish()
            self._sockets = PodSockets(
                lambda slot: self.folder / slot, answer, self._events.follow, lambda *_: True, self._put
            )
            await self._sockets.serve(SLOT, "w")

        self._do(serve())

    def stop(self) -> None:
        """End as a process does: connections end, too."""

        async def end() -> None:
            await self._sockets.close()
            for writer in [writer for known in self._sockets._known.values() for writer in known]:
                writer.transport.abort()
            await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True)
            self.path.unlink(missing_ok=True)

        self._do(end())

    def close(self) -> None:
        """End it, and its thread."""
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def annotate(self, **texts: str) -> None:
        """Change annotations, as the API server reports it."""

        async def change() -> None:
            self.annotations |= {KEYS[key]: text for key, text in texts.items()}
            self._publish()

        self._do(change())

    def pair(self, key: str) -> None:
        """Name the notebook's key, as the scheduler does."""
        self.annotate(service=encode(WorkerService("ann", "u", key)))

    def _put(self, _uid: str, peer: Peer) -> str:
        self.said.append(peer)
        if not self.takes:
            return "not now"
        self.annotations[ATTACHED] = encode(replace(self.attached, peer=peer))
        self._publish()
        return ""

    @property
    def attached(self) -> Attached:
        """The record of the pod's GPUs and keys."""
        try:
            return decode_attached(self.annotations[ATTACHED])
        except (KeyError, InvalidAnnotation):
            return Attached(1)

    @property
    def pod(self) -> dict[str, Any]:
        """The pod, as a hub's service tells it."""
        about = {"namespace": "n", "name": "w", "uid": "w", "version": str(self._version)}
        return {**about, "annotations": dict(self.annotations)}

    def _publish(self) -> None:
        self._version += 1
        about = {"namespace": "n", "name": "w", "uid": "w", "resourceVersion": str(self._version)}
        self._events.update({"metadata": {**about, "annotations": dict(self.annotations)}})

    def _do(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(30)


class WorkerPod:
    """The worker's program, with a pod's socket. ``before``: what runs it; ``port``, ``alone``: as in `node.main`.

    ``standby``: whether a kernel stands by.
    """

    def __init__(
        self,
        plugin: Plugin,
        *,
        files: int = 0,
        before: Sequence[str] = (),
        port: int = 0,
        alone: tuple[int, int] = node.ALONE,
        standby: bool = False,
    ) -> None:
        self.plugin, self._before, self.standby = plugin, before, standby
        self.port = port or free_ports()
        limit = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({files}, {files}))\n" if files else ""
        code = f"{limit}from jupyter_gpu.worker import node; node.main({self.port}, {alone})"
        self.log = plugin.folder / "log"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [*before, sys.executable, "-P", "-c", code],
                env={
                    **{key: value for key, value in os.environ.items() if key != "PYTEST_CURRENT_TEST"},
                    "JUPYTER_GPU_NODE_SOCKET": str(plugin.path),
                    VARIABLE: str(int(standby)),
                    "IPYTHONDIR": str(plugin.folder / "ipython"),
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        until(lambda: bool(plugin.said) or self.process.poll() is not None, "the worker to say its key")
        assert self.process.poll() is None, self.log.read_text()

    def notebook(self) -> WorkerAddress:
        """Return the way of a notebook with a key pair of its own, which is not named yet."""
        public, secret = (key.decode() for key in zmq.curve_keypair())
        return WorkerAddress("node2", "127.0.0.1", self.port, self.plugin.said[-1].key, public, secret)

    def paired(self) -> WorkerAddress:
        """Return the way of the notebook that is named."""
        made = self.notebook()
        self.plugin.pair(made.public)
        return made

    def end(self) -> None:
        """End it."""
        if self._before:
            self.process.kill()  # what runs it ignores SIGTERM
        else:
            self.process.terminate()
        self.process.wait(30)


@contextlib.contextmanager
def plugin(**options: Any) -> Iterator[Plugin]:
    """A node plugin in a folder of its own, with a short path."""
    folder = Path(tempfile.mkdtemp(prefix="jgw-", dir="/tmp"))
    made = Plugin(folder, **options)
    try:
        yield made
    finally:
        made.close()
        shutil.rmtree(folder)


@contextlib.contextmanager
def worker_pod(node: Plugin, **options: Any) -> Iterator[WorkerPod]:
    """A worker's program."""
    made = WorkerPod(node, **options)
    try:
        yield made
    finally:
        made.end()
