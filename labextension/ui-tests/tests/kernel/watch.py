"""Prints how many of the devices in a folder can be opened, whenever that changes."""

import os
import sys
import time
from pathlib import Path


def can_open(path: Path) -> bool:
    try:
        os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
    except OSError:
        return False
    return True


print("pid", os.getpid(), flush=True)
before = None
while True:
    now = sum(can_open(path) for path in sorted(Path(sys.argv[1]).glob("gpu?")))
    if now != before:
        print("can open", now, flush=True)
        before = now
    time.sleep(0.05)
