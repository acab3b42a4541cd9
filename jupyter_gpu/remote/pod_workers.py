"""The workers of this notebook's pod, on other nodes: the way to each, and connections to their kernels.

The server has the keys and tells them to code of its own alone (``GET workers``). It is asked for each connection, as
keys change when the server or a worker starts anew; connections that are open go on.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from urllib.parse import quote

from jupyter_gpu.kernel.blocks import owner
from jupyter_gpu.kernel.client import Call, Client
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote.connection import Connection
from jupyter_gpu.remote.errors import WorkerLost, WorkerRefused
from jupyter_gpu.remote.first_process import WorkerAddress, read_ways
from jupyter_gpu.remote.kept_questions import KeptQuestions
from jupyter_gpu.remote.rules.control import Kill
from jupyter_gpu.remote.shipped import Shipped

PATIENCE = 20.0
"""Seconds within which a new key of either end is known to the other one: node plugins and scheduler hand it on."""
LAST = 2.0
"""Seconds for the end of a kernel that could not be reached."""
FIRST_PAUSE, LAST_PAUSE = 0.02, 0.2
"""Seconds from one attempt to connect to the next, twice as long each time: a new key is most often known soon."""


class PodWorkers:
    """The workers of the pod. ``client`` is called when the server is asked."""

    def __init__(self, client: Callable[[], Client], kept: KeptQuestions | None = None) -> None:
        self._client = client
        self._shipped = Shipped(client)
        self._kept = kept or KeptQuestions()

    def connect(self, worker: str, kernel: str, folder: str, before: Connection | None = None) -> Connection:
        """Connect to a kernel of a worker, new or not; what still runs in it from ``before`` is interrupted.

        Raises `WorkerLost`, `WorkerRefused` and `GpuError`.
        """
        until, pause = time.monotonic() + PATIENCE, FIRST_PAUSE
        try:
            while True:
                try:
                    shipped = partial(self._shipped.add, worker)
                    return Connection(self._address(worker), kernel, folder, before, shipped, self._kept.ask)
                except WorkerLost:
                    if time.monotonic() >= until:
                        raise
                time.sleep(pause)
                pause = min(2 * pause, LAST_PAUSE)
        except BaseException:
            if before is None:
                self.kill(worker, kernel, LAST)
            raise

    def shipped(self, worker: str, count: int) -> None:
        """Count bytes that went to a worker or came from it."""
        self._shipped.add(worker, count)

    def close(self) -> None:
        """Tell the server what is new, as this process ends."""
        self._kept.close()
        self._shipped.close()

    def kill(self, worker: str, kernel: str, patience: float) -> None:
        """End a kernel, as far as that is possible: one that has no client ends by itself."""
        with suppress(WorkerLost, WorkerRefused, GpuError):
            self._kept.ask(self._address(worker), Kill(kernel), patience)

    def _address(self, worker: str) -> WorkerAddress:
        path = f"workers?owner={quote(strict.dumps(owner().to_json()))}"  # whose end ends its kernels there
        found = self._client().exchange(Call("GET", path)).ask(read_ways).get(worker)
        if found is None:
            raise WorkerLost(gettext("The worker with these GPUs cannot be reached now."))
        return found
