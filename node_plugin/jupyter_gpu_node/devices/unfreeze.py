"""Thawing of frozen pods: none stands still for longer than the look at it, even if this process dies in the middle.

Its `CleanupProcess` learns each group before it is frozen, and lets all of them run then. A container whose
every process is killed at once loses it as well: then the next node plugin is the one that does
(`enclose`).
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
    """The link to the deputy. Pods are held still side by side, in threads."""

    def __init__(self, python: str = sys.executable) -> None:
        self._cleanup = CleanupProcess(_ACT, python)
        self._one = threading.Lock()
        atexit.register(self.close)

    def hold(self, group: Path) -> None:
        """Have ``group`` run again if this process dies. Raises `OSError` if that cannot be promised."""
        with self._one:
            try:
                self._cleanup.hold(os.fsencode(group))
            except OSError:
                self._cleanup.release(os.fsencode(group))
                raise

    def release(self, group: Path) -> None:
        """Note that ``group`` runs again."""
        with self._one:
            self._cleanup.release(os.fsencode(group))

    def close(self) -> None:
        """End the deputy; it lets run what it was told of."""
        with self._one:
            self._cleanup.close()
