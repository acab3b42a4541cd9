"""Unfreezing of pods: no pod stays frozen for longer than its scan, even if this process dies in the middle.

A `CleanupProcess` learns each group before it is frozen, and unfreezes them all when this process dies. If all
processes of the container are killed at once, it dies as well: then the next node plugin unfreezes them (`guard_pod`).
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from pathlib import Path

from jupyter_gpu_node.processes.cleanup_process import CleanupProcess

_ACT = """
def act(group):
    with open(group + b"/cgroup.freeze", "wb") as file:
        file.write(b"0")
"""


class Unfreezer:
    """The link to the clean-up process. Pods are frozen concurrently, in threads."""

    def __init__(self, python: str = sys.executable) -> None:
        self.cleanup = CleanupProcess(_ACT, python)
        """The clean-up process."""
        self._one = threading.Lock()
        atexit.register(self.close)

    def hold(self, group: Path) -> None:
        """Have ``group`` unfrozen if this process dies. Raises `OSError` if that cannot be guaranteed."""
        with self._one:
            try:
                self.cleanup.hold(os.fsencode(group))
            except OSError:
                self.cleanup.release(os.fsencode(group))
                raise

    def release(self, group: Path) -> None:
        """Note that ``group`` runs again."""
        with self._one:
            self.cleanup.release(os.fsencode(group))

    def close(self) -> None:
        """End the clean-up process; it unfreezes the groups that are still held."""
        with self._one:
            self.cleanup.close()
