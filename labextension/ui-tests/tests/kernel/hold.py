"""Keeps every attached GPU open."""

import time

from jupyter_gpu.simulate import hold

with hold() as devices:
    print("holding", len(devices), flush=True)
    time.sleep(600)
