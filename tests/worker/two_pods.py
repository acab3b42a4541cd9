"""A notebook's pod and the pod of its worker, on this machine: a real server, real kernels, a real worker.

The test stands in place of the cluster: it writes wishes as the hub's service does, and decides as the scheduler does.
A GPU is given back when no kernel of the worker is left, as if each had all of them open.
"""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from jupyter_gpu.model.annotations import ALLOCATED, REQUESTED, SERVICE, Allocated, Requested, decode_requested, encode
from jupyter_gpu.model.gpu import GpuShare
from jupyter_gpu.model.gpu_kind import GpuKind
from jupyter_gpu.model.service import Relation, Service, WorkerPart, WorkerService, decode_service
from jupyter_gpu.worker.plugin_socket import VARIABLE
from tests.kernel.builders import gpu
from tests.kernel.servers import Server, environment, serve
from tests.worker.pods import Plugin, WorkerPod, plugin, worker_pod

TOKEN = "JUPYTERHUB_API_TOKEN"
FIRST_OF_OTHERS = 100
KEPT = 60 * 2**30
"""Memory of the test's GPUs that is not lent."""


class TwoPods:
    """The cluster. ``own``, ``other``: GPUs of both nodes that can be had."""

    def __init__(self, notebook: Plugin, worker: Plugin) -> None:
        self.notebook, self.worker = notebook, worker
        self.own, self.other = 1, 2
        self.lends = False
        """Whether whole GPUs of the notebook's node are lent while they rest, if its wish says so."""
        self.kinds: tuple[GpuKind, ...] = ()
        """The kinds of the other node's GPUs, as ``service`` says."""
        self.pause = 0.02
        """Seconds between two decisions."""
        self.named = False
        """Whether the worker is in `service`: from its first part on."""
        self.pod: WorkerPod | None = None
        self.server: Server | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Decide nothing more."""
        self._ended.set()
        self._thread.join()

    @property
    def kernels(self) -> list[int]:
        """Pids of the worker's kernels, without the one that stands by, which is in no notebook's folder."""
        if self.pod is None:
            return []
        first = Path(f"/proc/{self.pod.process.pid}")
        with contextlib.suppress(OSError):
            pids = [int(pid) for one in (first / "task").glob("*/children") for pid in one.read_text().split()]
            if not self.pod.standby:
                return pids
            return [pid for pid in pids if Path(f"/proc/{pid}/cwd").readlink() != (first / "cwd").readlink()]
        return []

    @property
    def requested(self) -> Requested:
        """The recorded wish."""
        text = self.notebook.annotations.get(REQUESTED)
        return decode_requested(text or "0")

    def _run(self) -> None:
        while not self._ended.wait(self.pause):
            self._decide()

    def _decide(self) -> None:
        """Serve what the own node has, and a set or the rest on the other one."""
        now = self.requested
        here = min(now.milli, 1000 * self.own)
        there = now.milli - here
        if (now.wish.set or 0) > here:
            there = now.wish.set or 0
            here = now.milli - there
        elsewhere = 0 if now.wish.placement == "local" else 1000 * self.other
        kinds = self.kinds if elsewhere else ()
        there = min(there, elsewhere)
        lends = self.lends and bool(now.wish.lendable)
        own = tuple(share._replace(memory=KEPT * lends) for share in _shares(0, here))
        attached = self._attached(there)
        self.named = self.named or there > 0
        part = WorkerPart("w1", "node2", there, Relation.SWITCH, "p", "w", attached=attached)
        known = dict(self.notebook.attached.peer.keys if self.notebook.attached.peer else ())
        if self.pod is not None and self.pod.plugin.said:
            said = self.pod.plugin.said[-1]
            part = replace(part, address="127.0.0.1", port=said.port, key=said.key)
        self._write(
            self.notebook,
            allocated=encode(Allocated(now.generation, own, lendable=lends if self.lends else None)),
            attached=encode(replace(self.notebook.attached, observed_generation=now.generation, shares=own)),
            service=encode(Service(now.generation, (part,) * self.named, elsewhere=elsewhere, kinds=kinds)),
        )
        self._write(self.worker, service=encode(WorkerService("ann", "u", known.get("w1", ""))))

    def _attached(self, milli: int) -> tuple[GpuShare, ...]:
        known = self.notebook.annotations.get(SERVICE)
        workers = decode_service(known).workers if known else ()
        before = workers[0].attached if workers else ()
        if sum(share.milli for share in before) > milli and self.kernels:
            return before
        return _shares(FIRST_OF_OTHERS, milli) if self.pod else ()

    def _write(self, node: Plugin, **texts: str) -> None:
        keys = {"allocated": ALLOCATED, "service": SERVICE}
        if any(node.annotations.get(keys.get(key, "jupyter-gpu.io/attached")) != text for key, text in texts.items()):
            node.annotate(**texts)


def _shares(first: int, milli: int) -> tuple[GpuShare, ...]:
    whole = [GpuShare(gpu(first + at).uuid, 1000) for at in range(milli // 1000)]
    return (*whole, *([GpuShare(gpu(first + len(whole)).uuid, milli % 1000)] if milli % 1000 else []))


@contextlib.contextmanager
def hub(notebook: Plugin) -> Iterator[str]:
    """Run a hub's service that writes wishes of one pod; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._answer()

        def do_PUT(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            notebook.annotate(requested=json.dumps(body["requested"]))
            self._answer()

        def _answer(self) -> None:
            text = json.dumps(notebook.pod).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as service:
        thread = threading.Thread(target=service.serve_forever, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{service.server_address[1]}/"
        finally:
            service.shutdown()
            thread.join()


@contextlib.contextmanager
def two_pods(folders: pytest.TempPathFactory, *, worker: bool = True, standby: bool = False) -> Iterator[TwoPods]:
    """Run both pods; the worker does not see the notebook's folder."""
    folder = folders.mktemp("notebook")
    with contextlib.ExitStack() as stack:
        own, other = stack.enter_context(plugin()), stack.enter_context(plugin())
        own.annotations.clear()
        own.gpus = (gpu(0), gpu(1))
        other.gpus = (gpu(FIRST_OF_OTHERS), gpu(FIRST_OF_OTHERS + 1))
        made = TwoPods(own, other)
        stack.callback(made.close)
        address = stack.enter_context(hub(own))
        env = {**environment(folder), VARIABLE: str(own.path), TOKEN: "x"}
        option = f"--GpuExtension.hub_service={address}"
        made.server = stack.enter_context(serve(folder, folder / "state", option, env=env))
        if worker:
            stack.enter_context(started(made, standby=standby))
        yield made


@contextlib.contextmanager
def started(pods: TwoPods, port: int = 0, *, standby: bool = False) -> Iterator[WorkerPod]:
    """Run the worker's pod, in whose mounts the notebook's folder is empty. ``port``: that of before."""
    assert pods.server is not None
    hide = f'mount -t tmpfs none {pods.server.folder}; exec "$@"'
    before = ("unshare", "--mount", "sh", "-c", hide, "sh")
    with worker_pod(pods.worker, before=before, port=port, standby=standby) as pod:
        pods.pod = pod
        try:
            yield pod
        finally:
            pods.pod = None
