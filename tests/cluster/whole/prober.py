"""Runs in a pod from its first instant, with nothing but the standard library: tries to open every device, for ever.

    python3 prober.py LOG DEVICE…

Appends one JSON line to LOG when a device begins to open (``{"device", "open": true, "time", "failed"}``: when the
first attempt that succeeded had ended; when the last failed one before it began), when it ceases to (``"open": false``:
when the last attempt that succeeded began; when the first failed one had ended, and its ``error``), and one each
second, the first of these after all devices were tried once. So what a line says is proved, however long this process
had to wait for a processor. Times are ``CLOCK_MONOTONIC``, which all processes of a machine share. A device that is
opened is closed at once, so that it never keeps a GPU from being given back.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import TextIO

FLAGS = os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK | os.O_CLOEXEC


def attempt(path: str) -> int:
    """Opens and closes; 0, or the number of the error."""
    try:
        descriptor = os.open(path, FLAGS)
    except OSError as error:
        return error.errno or -1
    os.close(descriptor)
    return 0


def probe(log: TextIO, paths: list[str]) -> None:
    """Until it is ended."""
    succeeded: dict[str, float] = {}
    failed: dict[str, float] = {}
    attempts = 0
    told = time.monotonic()

    def tell(**line: object) -> None:
        log.write(json.dumps({**line, "attempts": attempts}) + "\n")
        log.flush()

    tell(started=True, time=told)
    told -= 1
    while True:
        for path in paths:
            before = time.monotonic()
            attempts += 1
            error = attempt(path)
            if not error:
                if path not in succeeded:
                    tell(device=path, open=True, time=time.monotonic(), failed=failed.get(path))
                succeeded[path] = before
                continue
            if path in succeeded:
                last = succeeded.pop(path)
                tell(device=path, open=False, time=last, failed=time.monotonic(), error=error)
            failed[path] = before
        if before - told >= 1:
            tell(time=before)
            told = before


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # the first process of a container ignores it otherwise
    with open(sys.argv[1], "a", encoding="utf-8") as file:  # noqa: PTH123 - light: nothing but what it needs
        probe(file, sys.argv[2:])
