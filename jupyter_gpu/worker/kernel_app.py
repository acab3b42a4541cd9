"""One kernel of a worker: a stock ipykernel whose sockets accept the notebook alone.

Started by the first process (`supervisor`) with two pipes: `Run` comes by the standard input, then `Allow` whenever the
notebook has another key, and once `Take`, when it is somebody's: `Started` is the answer, by the other pipe. Until then
it may have stood by for long. It has no connection file, as that would keep the keys.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import IO, Any

import zmq
from ipykernel.kernelapp import IPKernelApp
from traitlets import Instance

from jupyter_gpu.model import strict
from jupyter_gpu.remote import versions
from jupyter_gpu.remote.rules.control import CHANNELS, MAX_BYTES, Allow, Run, Started, Take, read
from jupyter_gpu.worker import pinned
from jupyter_gpu.worker.clients import Clients
from jupyter_gpu.worker.messages import GpuKernel

FLUSH = 0.02
"""Seconds for which printed text is collected before it is sent; ipykernel's own are 0.2."""
ARGUMENTS = ("--IPKernelApp.extra_extensions=jupyter_gpu.startup", "--HistoryManager.enabled=False")
"""The guard of CUDA, as in every kernel; and no line in the user's history, where the notebook's own is already."""


class GpuKernelApp(IPKernelApp):  # type: ignore[misc] # it has no types
    """The application of a worker's kernel. Its hooks into ipykernel are looked for by a test."""

    kernel_class = GpuKernel
    run = Instance(Run)
    keys = Instance(pinned.Keys)
    _authenticator: Any = None
    _clients: Clients | None = None

    def init_connection_file(self) -> None:
        """Take over what a connection file would say."""
        self.ip, self.transport = self.run.address, "tcp"
        self.session.key = self.run.key.encode()
        if port := self.run.port:
            self.shell_port, self.iopub_port, self.stdin_port, self.control_port = range(port, port + CHANNELS)
        self.curve_publickey, self.curve_secretkey = self.run.public.encode(), self.run.secret.encode()

    def _apply_curve_server_options(self, socket: zmq.Socket[Any]) -> None:
        if self._authenticator is None:
            self._authenticator = pinned.authenticator(socket.context, self.keys)
        pinned.serve(socket, self.run.public.encode(), self.run.secret.encode(), ipv6=":" in self.ip)

    def _apply_curve_client_options(self, socket: zmq.Socket[Any]) -> None:
        super()._apply_curve_client_options(socket)
        socket.ipv6 = ":" in self.ip

    def init_control(self, context: zmq.Context[Any]) -> None:
        """Bind its socket, and see who connects to it: only the notebook does, which to the shell's the kernel does."""
        super().init_control(context)
        if self.run.end:
            self._clients = Clients(self.control_socket, self.run.interrupt, self.run.end)

    def warm(self) -> None:
        """Do once what the first notebook would wait for: load what runs cells and tells versions."""
        versions.installed()
        self.shell.run_cell("pass", store_history=False, silent=True)

    def begin(self, folder: str, report: int) -> None:
        """Begin to be somebody's: in a folder, where it is there; without a client it ends from now on."""
        with suppress(OSError):
            os.chdir(folder)
            self.shell.user_ns["_dh"][:] = [folder]  # IPython's list of the folders of this session
        if self._clients is not None:
            self._clients.watch(self.kernel.interrupt)
        with open(report, "wb") as pipe:
            pipe.write(self.started().dump() + b"\n")

    def init_heartbeat(self) -> None:
        """Start none: its socket would answer to anybody who has the public key. ZeroMQ's own heartbeats replace it."""

    def write_connection_file(self, **_: Any) -> None:
        """Write none."""

    def init_signal(self) -> None:
        """Leave it to the kernel, which takes interrupts while it runs a cell."""

    def init_io(self) -> None:
        """Redirect output, and send it soon."""
        super().init_io()
        sys.stdout.flush_interval = sys.stderr.flush_interval = FLUSH  # type: ignore[union-attr]

    def started(self) -> Started:
        """Return what a client needs."""
        ports = (self.shell_port, self.iopub_port, self.stdin_port, self.control_port)
        return Started(self.run.key, *ports)

    def close(self) -> None:
        """Close all sockets; ours first, as the context waits for them."""
        clients, self._clients = self._clients, None
        if clients is not None:
            clients.close()
        authenticator, self._authenticator = self._authenticator, None
        if authenticator is not None:
            authenticator.stop()
        super().close()


def follow(orders: IO[bytes], keys: pinned.Keys, own: str, taken: Future[str]) -> None:
    """Allow the keys that the first process names; nobody any more, if what it says can't be read.

    ``taken`` gets the folder of `Take`. When that process has ended, this one ends, and what it started.
    """
    for line in iter(lambda: orders.readline(MAX_BYTES), b""):
        try:
            word = read(line, Allow, Take)
        except strict.FieldError:
            keys.allow({own})
            while orders.read(MAX_BYTES):
                pass
            break
        if isinstance(word, Allow):
            keys.allow({own, *word.keys})
        elif isinstance(word, Take) and not taken.done():
            taken.set_result(word.folder)
    # ipykernel looks for another parent only if it had this one when it was loaded, and else for process 1 as parent.
    with suppress(ProcessLookupError):  # it has no group of its own
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)


def main(report: int) -> None:
    """Run the kernel, with the descriptor of the pipe for its answer."""
    orders = open(os.dup(0), "rb")  # noqa: SIM115, PTH123 - to the end of the process
    run = read(orders.readline(MAX_BYTES), Run)
    keys = pinned.Keys({*run.allow, run.public})  # its own, for sockets of its own that connect
    taken: Future[str] = Future()
    threading.Thread(target=follow, args=(orders, keys, run.public, taken), name="keys", daemon=True).start()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    app = GpuKernelApp.instance(run=run, keys=keys)
    app.initialize(["--quiet", *ARGUMENTS])
    if "" not in sys.path:  # Python was started without it (-P), so that no file of the folder hid a module from us
        sys.path.insert(0, "")
    app.warm()
    taken.add_done_callback(lambda done: app.begin(done.result(), report))  # at once, if it was taken meanwhile
    app.start()
