"""The kernel that stands by: started and nobody's, so that whoever needs one next need not wait for its start.

It has loaded what every kernel loads, sees no GPU, and has run nothing. A notebook that takes it is its first and only
one; a kernel is never given back. The next one is started a while later. One that ends before it is taken is replaced
after a pause, which doubles each time until a kernel was of use again. One that ends between that and its answer has
run nothing, so the first process starts another one for the same notebook at once.
"""

from __future__ import annotations

import time
from collections.abc import Mapping

from jupyter_gpu.remote.rules.standby_times import StandbyTimes
from jupyter_gpu.remote.rules.switch import is_on
from jupyter_gpu.worker.kernels import Kernel

VARIABLE = "JUPYTER_GPU_WORKER_STANDBY"
"""The environment variable that switches it on (``1``) or off (``0``); else in pods alone it is on."""


def wanted(environ: Mapping[str, str]) -> bool:
    """Tell whether a kernel is to stand by in a pod. Raises `FieldError`."""
    return is_on(environ, VARIABLE)


class Standby:
    """The kernel that stands by, or the time of its start. ``now``: when the first may start."""

    def __init__(self, now: float) -> None:
        self.kernel: Kernel | None = None
        self._times = StandbyTimes(now)

    def wait(self, now: float) -> float | None:
        """Return the seconds until one is to be started; None: there is one."""
        return None if self.kernel is not None else self._times.wait(now)

    def take(self, now: float) -> Kernel | None:
        """Return the kernel, which is none that stands by any more; None: there is none."""
        taken, self.kernel = self.kernel, None
        if taken is not None:
            taken.stood_by = True
        self._times.taken(now)
        return taken

    def worked(self) -> None:
        """Note that a kernel was ready for its notebook."""
        self._times.worked()

    def failed(self, now: float) -> None:
        """Note that it could not be started, or ended."""
        self._times.failed(now)

    def on_end(self) -> None:
        """Take note that its process has ended."""
        self.close()
        self.failed(time.monotonic())

    def close(self) -> None:
        """End it."""
        ended, self.kernel = self.kernel, None
        if ended is not None:
            ended.kill()
            ended.close()
