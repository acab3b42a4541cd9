"""The machine's GPUs, looked up in a thread of their own: the driver may take its time, and GPU-hours must not wait."""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable
from typing import NamedTuple

from jupyter_gpu.model.gpu import Gpu
from jupyter_gpu_node.gpus.source import GpuSource

EVERY = 60.0
"""Seconds between two looks: a GPU breaks rarely."""
_log = logging.getLogger(__name__)


class KnownGpus(NamedTuple):
    """The GPUs as they were found last."""

    gpus: tuple[Gpu, ...]
    note: str = ""
    """Problem that the source found, in plain words."""


class MachineGpus:
    """The GPUs of a source. `fileno` becomes readable when they are others than before."""

    def __init__(self, source: Callable[[], GpuSource], every: float = EVERY) -> None:
        self._open, self._every = source, every
        self._event = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._found: KnownGpus | None = None

    def start(self) -> None:
        """Look from now on, until the process ends."""
        threading.Thread(target=self._run, name="gpus", daemon=True).start()

    def fileno(self) -> int:
        """Return the descriptor."""
        return self._event

    def read(self) -> KnownGpus | None:
        """Return the GPUs; ``None``: they are not known yet."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._event)
        return self._found

    def _run(self) -> None:
        pause, source = threading.Event(), None
        while True:
            try:
                source = source or self._open()
                found = KnownGpus(source.inventory(), source.note)
            except (OSError, ValueError) as error:
                found = KnownGpus((), f"They can't be looked up: {error}")
            if found != self._found:
                if found.note:
                    _log.warning("The machine's GPUs: %s", found.note)
                self._found = found
                os.eventfd_write(self._event, 1)
            pause.wait(self._every)
