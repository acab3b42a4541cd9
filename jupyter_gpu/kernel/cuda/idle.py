"""Notices between the cells of a kernel that its GPUs change, while NVML may keep them open.

A cell that only asked how many GPUs there are leaves NVML with all of them open. When the slider or another notebook
gives one back, this kernel may run no other cell for hours.
"""

from __future__ import annotations

from typing import Any

from .guard import CudaGuard

PERIOD = 1.0
"""Seconds between looks at the file of `attached`, which cost two microseconds."""


class IdleWatch:
    """A watch on the event loop of the kernel that has ``shell``; a console has no loop, and is not watched."""

    def __init__(self, guard: CudaGuard, shell: Any) -> None:
        self._guard, self._shell = guard, shell
        self._due = False

    def after_cell(self) -> None:
        """Watch from now on, if NVML may have GPUs open."""
        # The kernel gets its loop after the guard was set up.
        kernel = getattr(self._shell, "kernel", None)
        loop = getattr(getattr(kernel, "io_loop", None), "asyncio_loop", None)
        if loop is not None and not self._due and self._guard.nvml_keeps_gpus:
            self._due = True
            loop.call_later(PERIOD, self._look)

    def _look(self) -> None:
        self._due = False
        self._guard.refresh()
        self._guard.restart_nvml()
        self.after_cell()
