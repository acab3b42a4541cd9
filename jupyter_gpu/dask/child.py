"""One process that this program starts for Dask, and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess

from jupyter_gpu.dask.rules.words import Keep, Ready, Schedule, Work
from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote.errors import WorkerLost
from jupyter_gpu.remote.own_process import OwnProcess
from jupyter_gpu.remote.rules.control import MAX_BYTES, read

GRACE = 5.0
"""Seconds that it may take to end by itself."""


class Child(OwnProcess):
    """A scheduler, a worker or a keeper of results; which of them it is, its first word says."""

    def __init__(self, word: Schedule | Work | Keep | None = None) -> None:
        super().__init__("jupyter_gpu.dask.process", word.dump() if word else b"")
        self.ready = Ready("")
        """The address at which it is reached; none before `wait`."""

    @property
    def address(self) -> str:
        """The address at which it is reached; empty before `wait`."""
        return self.ready.address

    def wait(self) -> None:
        """Wait until it can be used. Raises `WorkerLost`."""
        assert self._process.stdout is not None
        try:
            self.ready = read(self._process.stdout.readline(MAX_BYTES), Ready)
        except strict.FieldError:
            self.end(0)
            raise WorkerLost(
                gettext("A process of Dask ended as it started (status %1).", self._process.returncode)
            ) from None

    def end(self, grace: float = GRACE) -> None:
        """End it, and what it started."""
        assert self._process.stdout is not None
        self._end_input()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
