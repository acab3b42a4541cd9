"""The process that stands by to be a Dask worker, so that a GPU that is added need not wait for its start.

It has loaded what every worker loads, sees no GPU, and waits for its first word. A worker never comes back, so each is
used once; the next one is started a while later. One that ends before it is taken is replaced after a pause, which
doubles each time until one was of use again.
"""

from __future__ import annotations

import os
from contextlib import suppress

from jupyter_gpu.common.rules.visible import VARIABLES
from jupyter_gpu.dask.child import Child
from jupyter_gpu.dask.rules.words import Work
from jupyter_gpu.remote.rules.standby_times import AFTER, StandbyTimes
from jupyter_gpu.remote.rules.switch import is_on

_OF_GPUS = {name for names in VARIABLES.values() for name in names}
"""The variables that follow the program's GPUs: a worker is told of its own."""
VARIABLE = "JUPYTER_GPU_DASK_STANDBY"
"""The environment variable that switches it off (``0``)."""


class Standby:
    """The process that stands by, or the time of its start. Raises `FieldError` for another value of `VARIABLE`."""

    def __init__(self, now: float) -> None:
        self._on = is_on(os.environ, VARIABLE)
        self._child: Child | None = None
        self._inherited = ("", dict[str, str]())
        self._times = StandbyTimes(now + AFTER)

    @property
    def pid(self) -> int:
        """Its pid; 0: there is none."""
        return 0 if self._child is None else self._child.pid

    @property
    def lives(self) -> bool:
        """Whether there is one that has not ended."""
        return self._child is not None and self._child.lives

    def work(self, word: Work, now: float) -> Child:
        """Return a process that becomes a worker: the one that stands by, or a new one."""
        taken, self._child = self._child, None
        self._times.taken(now)
        if taken is not None and taken.lives and self._inherited == _inherited():
            self._times.worked()
            taken.tell(word.dump())
            return taken
        if taken is not None:
            taken.end(0)
        return Child(word)

    def look(self, now: float) -> None:
        """Start one if it is due."""
        if self._child is not None and not self.lives:
            self.end()
            self._times.failed(now)
        if self._on and self._child is None and not self._times.wait(now):
            self._child, self._inherited = Child(), _inherited()

    def end(self) -> None:
        """End it."""
        if self._child is not None:
            child, self._child = self._child, None
            child.end(0)

    def forget(self) -> None:
        """Leave it to the program that this one was forked from."""
        if self._child is not None:
            self._child.forget()


def _inherited() -> tuple[str, dict[str, str]]:
    """Return what a process has of this program that may change: its folder, and all variables but those of its GPU."""
    folder = ""
    with suppress(FileNotFoundError):  # it was removed
        folder = os.getcwd()  # noqa: PTH109 - it is compared only
    return folder, {name: value for name, value in os.environ.items() if name not in _OF_GPUS}
