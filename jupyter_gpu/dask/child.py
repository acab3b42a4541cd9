"""One process that this program starts for Dask, and ends."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Mapping

from jupyter_gpu.dask.rules.words import Ready, Schedule, Work
from jupyter_gpu.model import strict
from jupyter_gpu.model.message import gettext
from jupyter_gpu.remote.errors import WorkerLost
from jupyter_gpu.remote.rules.control import MAX_BYTES, read

GRACE = 5.0
"""Seconds that it may take to end by itself."""


class Child:
    """A scheduler or a worker; it ends with this process, by the end of a pipe."""

    def __init__(self, word: Schedule | Work, environment: Mapping[str, str] | None = None) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "jupyter_gpu.dask.process"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            env=environment,
            start_new_session=True,  # Ctrl-C is for the program
        )
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(word.dump() + b"\n")
        self.address = ""
        """Where it is reached; empty before `wait`."""

    @property
    def pid(self) -> int:
        """Its pid."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether it has not ended yet."""
        return self._process.poll() is None

    def wait(self) -> None:
        """Wait until it can be used. Raises `WorkerLost`."""
        assert self._process.stdout is not None
        try:
            self.address = read(self._process.stdout.readline(MAX_BYTES), Ready).address
        except strict.FieldError:
            self.end(0)
            raise WorkerLost(
                gettext("A process of Dask ended as it started (status %1).", self._process.returncode)
            ) from None

    def forget(self) -> None:
        """Leave it to the process that started it: this one was forked."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.returncode = 0

    def end(self, grace: float = GRACE) -> None:
        """End it, and what it started."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(grace)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._process.stdout.close()
