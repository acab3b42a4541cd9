"""The supervisor of the arbiter: it keeps one running while this server has or wants a GPU, from a thread.

The lock's holder starts the process and hands the locked descriptor over, so the lock is free at the very moment at
which that process ends, whatever ended it; and the next server that waits starts another one.
"""

from __future__ import annotations

import contextlib
import fcntl
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from jupyter_gpu_node.devices.enforcement import MARK

from . import files

GATE = "JUPYTER_GPU_GATE"
"""Variable with the folder of the sockets."""
BOOT = "JUPYTER_GPU_GATE_BOOT"
"""Variable with the machine's boot, for which the other one is meant: an environment may get to another machine."""
NOT_YET = 0.2
"""Seconds before one is started: a GPU given back at once needs none, and no program asks for a turn so soon."""
YOUNG = 10.0
"""Seconds that one has to run for its end to be no failure of its start."""
FIRST_PAUSE, KILLED_PAUSE, LAST_PAUSE = 0.05, 1.0, 30.0
"""Seconds after a failure, doubled with each; at most so long if it was killed, and for a failure of its own."""
_HIDDEN = (GATE, BOOT, MARK)
_waiting: set[int] = set()
"""Descriptors of locks in this process. A copy in a child that is only forked would keep the lock from all others."""

_log = logging.getLogger(__name__)


def _forked() -> None:
    while _waiting:
        with contextlib.suppress(OSError):
            os.close(_waiting.pop())


os.register_at_fork(after_in_child=_forked)


def pause(failures: int, why: str) -> float:
    """Return the pause in seconds after so many failures in a row, the last of them ``why``; empty: it was killed."""
    return float(min(FIRST_PAUSE * 2 ** min(failures, 20), LAST_PAUSE if why else KILLED_PAUSE))


class Supervisor:
    """The supervisor of the arbiter for one server. ``leave`` moves a process out of the pod.

    ``changed`` is called in the supervisor's thread when there is a new problem.
    """

    def __init__(self, state: Path, leave: Callable[[int], None], changed: Callable[[], None]) -> None:
        self._state = state
        self._leave = leave
        self._changed = changed
        self._guard = threading.Lock()
        self._starts = threading.Lock()
        self._thread: threading.Thread | None = None
        self._needed = False
        self._stopped = threading.Event()
        self.problem = ""
        """Reason no arbiter could be started; empty if one could."""

    def need(self, needed: bool) -> None:
        """Note whether this server has or wants a GPU; never waits."""
        with self._guard:
            self._needed = needed and not self._stopped.is_set()
            if self._needed and self._thread is None:
                self._thread = threading.Thread(target=self._run, name="jupyter-gpu-arbiter", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        """Start none from now on. The thread may wait for the lock for a while: it ends as soon as it has it."""
        self._stopped.set()
        self.need(False)
        with self._starts:  # nothing is being started in the thread after this
            pass

    def _run(self) -> None:
        failures = 0
        self._stopped.wait(NOT_YET)
        while self._goes_on():
            began = time.monotonic()
            failed, why = self._once()
            failures = failures + 1 if failed and time.monotonic() - began < YOUNG else 0
            if why and why != self.problem:
                _log.warning("GPU time can't be shared out: %s", why)
            if why != self.problem:
                self.problem = why
                self._changed()
            if failures:
                self._stopped.wait(pause(failures, why))

    def _goes_on(self) -> bool:
        with self._guard:
            if not self._needed:
                self._thread = None
            return self._needed

    def _once(self) -> tuple[bool, str]:
        """Wait for the lock, start an arbiter, wait for its end; whether it was cut short, and why if of itself."""
        try:
            process = self._start()
        except OSError as error:
            return True, f"It can't be started: {error}."
        status = process.wait() if process else 0
        if status:
            self._resume_stopped()
        if status <= 0:  # killed on purpose
            return status < 0, ""
        return True, f"It ended with status {status}; {files.home(self._state) / files.LOG} says why."

    def _resume_stopped(self) -> None:
        """Resume processes that the arbiter had stopped: the next one may belong to another user, and could not."""
        with contextlib.suppress(OSError, ValueError):
            from .ending import resume
            from .stopped_elsewhere import (
                stopped_by,  # of the arbiter's own modules, which are many: only where one failed
            )

            resume(stopped_by(self._state, os.geteuid()))

    def _start(self) -> subprocess.Popen[bytes] | None:
        lock = files.open_lock(self._state)
        _waiting.add(lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            with self._starts:
                if not self._needed or not files.is_current(self._state, lock):
                    return None
                process = self._popen(lock)
        finally:
            _waiting.discard(lock)
            os.close(lock)
        with contextlib.suppress(OSError):  # it leaves by itself, too
            self._leave(process.pid)
        return process

    def _popen(self, lock: int) -> subprocess.Popen[bytes]:
        files.make_home(self._state)
        log = files.open_log(self._state)
        try:
            return subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", __package__ or "", str(self._state), str(lock)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd="/",
                env={name: value for name, value in os.environ.items() if name not in _HIDDEN},
                pass_fds=[lock],
                start_new_session=True,
            )
        finally:
            os.close(log)
