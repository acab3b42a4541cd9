"""Ends what tests have started when their process is gone, however it ended: hubs, API servers, kernels, browsers.

All of them inherit one environment variable. A small process of its own waits for the end of the tests' process and
then ends those that have it, and nothing else; it is started once in each process that runs tests.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

MARK = "JUPYTER_GPU_TEST_PROCESS"
"""The variable; its value differs for each process that runs tests."""
SECONDS = 5.0
"""Time to end in order."""


class Reaper:
    """The process that ends what this one has started."""

    def __init__(self) -> None:
        self._pipe: int | None = None

    def start(self) -> None:
        """Mark all processes that are started from now on, and start the one that ends them."""
        os.environ[MARK] = value = uuid.uuid4().hex
        reading, self._pipe = os.pipe()  # the writing end is closed with this process, however it ends
        os.posix_spawn(  # no `Popen`, which warns of a process that lives on
            sys.executable,
            [sys.executable, "-S", __file__, value],
            {key: text for key, text in os.environ.items() if key != MARK},
            file_actions=[(os.POSIX_SPAWN_DUP2, reading, 0)],
            setsid=True,  # keeps it from the Ctrl-C that ends the tests
        )
        os.close(reading)


def marked(value: str) -> Iterator[int]:
    """Yield the processes that have the variable with this value."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            environment = (folder / "environ").read_bytes().split(b"\0")
        except OSError:  # it has ended, or belongs to somebody else
            continue
        if f"{MARK}={value}".encode() in environment:
            yield int(folder.name)


def end(value: str, seconds: float = SECONDS) -> None:
    """End the processes with this value: in order, and after some seconds by force."""
    signals: dict[int, signal.Signals] = {}
    deadline = time.monotonic() + seconds
    while found := list(marked(value)):
        now = signal.SIGTERM if time.monotonic() < deadline else signal.SIGKILL
        for pid in found:
            if signals.get(pid) is not now:
                signals[pid] = now
                with suppress(ProcessLookupError):
                    os.kill(pid, now)
        time.sleep(0.05)


if __name__ == "__main__":
    sys.stdin.buffer.read()
    end(sys.argv[1])
