"""The loads of a worker's GPUs, from its node plugin: a thread reads them, as the first process waits for nothing."""

from __future__ import annotations

import logging
import os
import queue
import threading
from pathlib import Path

from jupyter_gpu.model import strict
from jupyter_gpu.remote.rules import pairing
from jupyter_gpu.remote.rules.control import Loads
from jupyter_gpu.worker import plugin_socket

MAX_WAITING = 64
"""Clients that wait at a time; the server of a notebook is one."""
_log = logging.getLogger(__name__)


class LoadReader:
    """The reader of the loads. ``path``: the socket of the pod's slot."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._asked: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._answers: queue.SimpleQueue[tuple[bytes, Loads]] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self.ready, self._done = os.pipe()
        """The descriptor that can be read when there are answers."""

    def ask(self, client: bytes) -> None:
        """Read the loads for a client; it gets no answer while too many wait."""
        if self._asked.qsize() < MAX_WAITING:
            self._asked.put(client)
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="loads", daemon=True)
            self._thread.start()

    def answers(self) -> list[tuple[bytes, Loads]]:
        """Return the answers that there are, each with its client."""
        return [self._answers.get() for _ in os.read(self.ready, 4096)]

    def _run(self) -> None:
        while True:
            client = self._asked.get()
            try:
                loads = read(self._path)
            except (OSError, strict.FieldError) as error:
                _log.info("The GPU program of this node does not tell the load of the GPUs: %s.", error)
                loads = Loads()
            self._answers.put((client, loads))
            os.write(self._done, b".")


def read(path: Path) -> Loads:
    """Ask the node plugin for the loads and kinds of the pod's GPUs. Raises `OSError` and `FieldError`."""
    return pairing.read_sample(plugin_socket.ask(path, "sample"))
