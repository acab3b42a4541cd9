"""Uses the GPU of its pod without pause, as a CUDA program does, and writes down now and then how far it is.

Runs in a container with the stand-in driver: a file of its own, with `driver.py` beside it.
"""

import importlib
import json
import os
import sys
import time
from pathlib import Path


def main(log: Path, microseconds: int) -> None:
    """Work for ever."""
    while not (found := sorted(Path("/run/jupyter-gpu/shares").glob("*.json"))):
        time.sleep(0.05)
    os.environ["JUPYTER_GPU_STANDIN_GPUS"] = f"{found[0].stem}:1024"
    driver = importlib.import_module("driver")
    driver.start()
    kernel = driver.kernel(f"work_us{microseconds}")
    maps = Path("/proc/self/maps").read_text().splitlines()
    libraries = sorted({line.split()[-1] for line in maps if "libcuda" in line})
    count = 0
    while True:
        driver.launch(kernel)
        driver.launch(kernel)
        driver.call("cuCtxSynchronize")
        count += 2
        draft = log.with_suffix(".new")
        draft.write_text(json.dumps({"count": count, "libraries": libraries}))
        draft.replace(log)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
