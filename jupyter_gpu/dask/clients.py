"""The parts behind `gpu.client()`: the one cluster of this program, made at the first call."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import cryptography  # noqa: F401 - certificates need it; where it is missing, that is said first
import distributed

from jupyter_gpu.dask.cluster import Cluster
from jupyter_gpu.kernel.client import get_status

if TYPE_CHECKING:
    from jupyter_gpu.kernel.api import Runner
    from jupyter_gpu.kernel.waiting import Steps


class DaskClients:
    """The Dask clients of one `gpu`."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self._lock = threading.Lock()
        self._cluster: Cluster | None = None

    def client(self) -> distributed.Client:
        """Return a new client; see `ServerGpus.client`."""
        with self._lock:
            if self._cluster is not None and self._cluster.lives:
                with suppress(OSError):  # it was shut down just now
                    return self._cluster.client()
            if self._cluster is not None:
                self._cluster.close()
            view = self._runner.run(_now()).view
            self._cluster = Cluster(lambda: self._runner.client, view)
            return self._cluster.client()

    def make_room(self, milli: int) -> None:
        """Retire the workers before the server has only some milli; raises `WorkerRefused` if results would be lost.

        Where some GPUs stay, it is not known yet which: a worker moves its results while its GPU drains.
        """
        cluster = self._cluster
        if milli == 0 and cluster is not None:
            cluster.make_room()


def _now() -> Steps:
    return (yield get_status())
