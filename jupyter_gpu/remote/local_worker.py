"""A worker on the notebook's own machine: a fresh process in the same environment, which sees the GPUs of now.

The notebook's kernel starts it itself. So it has the same Python, is held to the same GPUs as all programs of the
server, and ends with the kernel: by the end of a pipe, also if the kernel is killed.
"""

from __future__ import annotations

import subprocess

import zmq

from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote.errors import WorkerLost
from jupyter_gpu.remote.first_process import WorkerAddress
from jupyter_gpu.remote.own_process import OwnProcess
from jupyter_gpu.remote.rules import control
from jupyter_gpu.remote.rules.control import Serve, Serving

LOOPBACK = "127.0.0.1"
_PATIENCE = 10.0


class LocalWorker(OwnProcess):
    """The first process of a worker on this machine."""

    def __init__(self) -> None:
        """Raises `WorkerLost` if it ends before it serves."""
        public, secret = (key.decode() for key in zmq.curve_keypair())
        super().__init__("jupyter_gpu.worker.supervisor", Serve(LOOPBACK, (public,)).dump())
        assert self._process.stdout is not None
        try:
            with self._process.stdout as answer:
                serving = control.read(answer.readline(control.MAX_BYTES), Serving)
        except strict.FieldError:
            self.close()
            raise WorkerLost(gettext("The worker ended as it started (status %1).", self._process.returncode)) from None
        except BaseException:
            self.close()
            raise
        self.address = WorkerAddress("this machine", LOOPBACK, serving.port, serving.key, public, secret)

    def close(self) -> None:
        """End it and its kernels."""
        self._end_input()
        try:
            self._process.wait(_PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
