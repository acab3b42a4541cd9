"""``python -m jupyter_gpu.worker``: the worker program of a pod."""

from __future__ import annotations

from jupyter_gpu.worker.node import main

if __name__ == "__main__":
    main()
