"""No pod stands still for longer than the look at it, even if this process dies in the middle.

A small process of its own is told of each group before it is frozen. When the pipe to it ends, for whatever reason, it
lets all of them run. A container whose every process is killed at once loses it as well: then the next node plugin is
the one that does (:func:`jupyter_gpu_node.guarded_pod.enclose`).
"""

from __future__ import annotations

import atexit
import contextlib
import os
import subprocess
import sys
from pathlib import Path

_CODE = """
import sys
held = set()
for line in sys.stdin.buffer:
    (held.add if line[:1] == b"+" else held.discard)(line[1:-1])
for path in held:
    try:
        with open(path + b"/cgroup.freeze", "wb") as file:
            file.write(b"0")
    except OSError:
        pass
"""
COMMAND = (sys.executable, "-I", "-S", "-c", _CODE)


class Thawer:
    """The process and the pipe to it; started when it is needed first, and again if it ended."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        atexit.register(self.close)

    def hold(self, group: Path) -> None:
        """From now on ``group`` runs again if this process dies. Raises :class:`OSError` if that cannot be promised."""
        if self._process is None or self._process.poll() is not None:
            self.close()
            self._process = subprocess.Popen(  # noqa: S603 - our own code
                COMMAND,
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                cwd="/",
                bufsize=0,
                start_new_session=True,  # what ends this process by a terminal is not for it
            )
        self._tell(b"+", group)

    def release(self, group: Path) -> None:
        """It runs again."""
        with contextlib.suppress(OSError):
            self._tell(b"-", group)

    def close(self) -> None:
        """End the process; it lets run what it was told of."""
        if self._process is None:
            return
        assert self._process.stdin is not None
        self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        self._process = None

    def _tell(self, sign: bytes, group: Path) -> None:
        line = sign + os.fsencode(group) + b"\n"
        if self._process is None or b"\n" in line[:-1]:
            raise OSError(f"{group} cannot be told of.")
        assert self._process.stdin is not None
        self._process.stdin.write(line)  # at once or not at all: it is shorter than a pipe's atomic size
