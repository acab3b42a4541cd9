"""``python -m jupyter_gpu.worker``: the first process of a worker."""

from __future__ import annotations

from jupyter_gpu.worker.supervisor import main

if __name__ == "__main__":
    main()
