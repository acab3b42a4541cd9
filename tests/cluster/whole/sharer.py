"""Uses the GPU of its pod without pause, as a CUDA program does, and writes down now and then how far it is.

It has the GPU open, and ends when it may not open it any more, so that another pod can have it. While there is a file
`pause` beside its own, it does nothing. Runs in a container with the stand-in driver: a file of its own, with
`driver.py` beside it.
"""

import importlib
import json
import os
import sys
import threading
import time
from pathlib import Path

CHECKS = 0.2
"""Seconds from one look at the GPU's device to the next."""


def main(log: Path, microseconds: int) -> None:
    """Work until the GPU is taken away."""
    while not ((found := sorted(Path("/run/jupyter-gpu/shares").glob("*.json"))) and (path := opened())):
        time.sleep(0.05)
    threading.Thread(target=end_with, args=(path,), daemon=True).start()
    os.environ["JUPYTER_GPU_STANDIN_GPUS"] = f"{found[0].stem}:1024"
    driver = importlib.import_module("driver")
    driver.start()
    kernel = driver.kernel(f"work_us{microseconds}")
    maps = Path("/proc/self/maps").read_text().splitlines()
    libraries = sorted({line.split()[-1] for line in maps if "libcuda" in line})
    count = 0
    while True:
        while log.with_name("pause").exists():
            time.sleep(CHECKS)
        driver.launch(kernel)
        driver.launch(kernel)
        driver.call("cuCtxSynchronize")
        count += 2
        draft = log.with_suffix(".new")
        draft.write_text(json.dumps({"count": count, "libraries": libraries}))
        draft.replace(log)


def opened() -> str:
    """Return a GPU that this process may open, and open it for good."""
    for path in sorted(map(str, Path("/dev/jupyter-gpu").iterdir())):
        try:
            os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)  # as the real driver does
        except PermissionError:
            continue
        return path
    return ""


def end_with(path: str) -> None:
    """End this process once it may not open that GPU any more, also while it waits for a turn."""
    while True:
        time.sleep(CHECKS)
        try:
            os.close(os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK))
        except PermissionError:
            os._exit(0)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
