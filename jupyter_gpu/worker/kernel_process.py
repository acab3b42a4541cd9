"""The process of a worker's kernel: loads what a kernel needs, slowly where nobody waits for it, and then runs it."""

from __future__ import annotations

import importlib
import os
import sys
import threading


def _load(pace: int) -> None:
    os.nice(pace)  # Linux changes this thread alone; a process without rights could not take it back
    importlib.import_module("jupyter_gpu.worker.kernel_app")


def main(report: int, pace: int) -> None:
    """Run a kernel, with the descriptor of the pipe for its answer, and the pace at which it loads."""
    loading = threading.Thread(target=_load, args=(pace,), name="loading")
    loading.start()
    loading.join()
    importlib.import_module("jupyter_gpu.worker.kernel_app").main(report)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]))
