"""One kernel of a worker: a stock ipykernel whose sockets accept the notebook alone.

Started by the first process (`supervisor`) with two pipes: `Run` comes by the standard input, `Started` goes back by
the descriptor in the last argument. It has no connection file, as that would keep the keys.
"""

from __future__ import annotations

import os
import sys
from typing import Any

import zmq
from ipykernel.kernelapp import IPKernelApp
from traitlets import Instance

from jupyter_gpu.remote.rules.control import MAX_BYTES, Run, Started, read
from jupyter_gpu.worker import pinned
from jupyter_gpu.worker.messages import GpuKernel

FLUSH = 0.02
"""Seconds for which printed text is collected before it is sent; ipykernel's own are 0.2."""
ARGUMENTS = ("--IPKernelApp.extra_extensions=jupyter_gpu.startup", "--HistoryManager.enabled=False")
"""The guard of CUDA, as in every kernel; and no line in the user's history, where the notebook's own is already."""


class GpuKernelApp(IPKernelApp):  # type: ignore[misc] # it has no types
    """The application of a worker's kernel. Its hooks into ipykernel are looked for by a test."""

    kernel_class = GpuKernel
    run = Instance(Run)
    _authenticator: Any = None

    def init_connection_file(self) -> None:
        """Take over what a connection file would say."""
        self.ip, self.transport = self.run.address, "tcp"
        self.session.key = self.run.key.encode()
        self.curve_publickey, self.curve_secretkey = self.run.public.encode(), self.run.secret.encode()

    def _apply_curve_server_options(self, socket: zmq.Socket[Any]) -> None:
        if self._authenticator is None:
            # A socket of its own connects with the kernel's own key.
            self._authenticator = pinned.authenticator(socket.context, {*self.run.allow, self.run.public})
        pinned.serve(socket, self.run.public.encode(), self.run.secret.encode())

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
        """Close all sockets; the authenticator first, as the context waits for it."""
        authenticator, self._authenticator = self._authenticator, None
        if authenticator is not None:
            authenticator.stop()
        super().close()


def main(report: int) -> None:
    """Run the kernel, with the descriptor of the pipe for its answer."""
    run = read(sys.stdin.buffer.readline(MAX_BYTES), Run)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    app = GpuKernelApp.instance(run=run)
    app.initialize(["--quiet", *ARGUMENTS])
    if "" not in sys.path:  # Python was started without it (-P), so that no file of the folder hid a module from us
        sys.path.insert(0, "")
    with open(report, "wb") as pipe:
        pipe.write(app.started().dump() + b"\n")
    app.start()


if __name__ == "__main__":
    main(int(sys.argv[1]))
