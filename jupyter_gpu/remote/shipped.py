"""The bytes that this process ships to the workers of its pod and gets from them: the server is told, for the panel.

A thread tells it, at once and then seldom, so no call waits for that. It tells sums, and ends when nothing is new.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable

from jupyter_gpu.kernel.blocks import owner
from jupyter_gpu.kernel.client import Call, Client
from jupyter_gpu.model import strict
from jupyter_gpu.model.errors import GpuError
from jupyter_gpu.model.service import MAX_WORKERS

PAUSE = 5.0
"""Seconds between two messages, at least."""
PATIENCE = 5.0
"""Seconds for the server's answer."""
LAST = 0.5
"""The same for the last message of a process that ends."""
_log = logging.getLogger(__name__)


class Shipped:
    """The sums of this process. ``client`` is called when the server is told."""

    def __init__(self, client: Callable[[], Client]) -> None:
        self._client = client
        self._sums: dict[str, int] = {}
        self._new = False
        """Whether the server knows less."""
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()

    def add(self, worker: str, count: int) -> None:
        """Count bytes that went to a worker or came from it."""
        if not count:
            return
        with self._lock:
            self._sums[worker] = self._sums.pop(worker, 0) + count
            self._new = True
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jupyter-gpu-shipped", daemon=True)
                self._thread.start()

    def close(self) -> None:
        """Tell what is new, as this process ends."""
        if self._new:
            self._tell(LAST)

    def _run(self) -> None:
        while True:
            with self._lock:
                if not self._new:
                    self._thread = None
                    return
            self._tell(PATIENCE)
            time.sleep(PAUSE)

    def _tell(self, patience: float) -> None:
        with self._lock:
            self._new, sums = False, dict(list(self._sums.items())[-MAX_WORKERS:])  # the latest ones
        body = {"owner": owner().to_json(), "shipped": sums}
        try:
            self._client().exchange(Call("PUT", "workers", body, patience)).ask(
                lambda answer: strict.an_object(answer, "answer")
            )
        except GpuError as error:  # the next sums contain these
            _log.info("The server is not told what was shipped: %s", error)
