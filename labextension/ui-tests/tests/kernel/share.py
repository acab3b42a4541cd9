"""Work on the simulated GPU that is attached, by way of its driver.

`share.py FOLDER OWNER steady SECONDS`: always has work. `share.py FOLDER OWNER burst SECONDS`: so much GPU time at once.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

from jupyter_gpu import gpu

folder, owner, kind, seconds = Path(sys.argv[1]), sys.argv[2], sys.argv[3], float(sys.argv[4])
os.environ["JUPYTER_GPU_STANDIN"] = str(folder / "boards")
os.environ["JUPYTER_GPU_STANDIN_GPUS"] = f"{gpu.devices[0].uuid}:24576"
os.environ["JUPYTER_GPU_STANDIN_OWNER"] = owner
driver = ctypes.CDLL("libcuda.so.1")


def call(name, *arguments):
    """A function of the driver; whole numbers are 64 bits wide."""
    wide = [ctypes.c_uint64(value) if isinstance(value, int) else value for value in arguments]
    code = getattr(driver, name)(*wide)
    assert code == 0, f"{name} answers {code}"


def new(name, *arguments):
    """The class of instances of a function."""
    made = ctypes.c_uint64()
    call(name, ctypes.byref(made), *arguments)
    return made.value


def launch():
    """A millisecond of work."""
    call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, 0, None, None)


call("cuInit", 0)
new("cuCtxCreate_v2", 0, 0)
new("cuMemAlloc_v2", 64 << 20)
kernel = new("cuModuleGetFunction", new("cuModuleLoadData", b"image"), b"work_us1000")
print("works", flush=True)
end = time.monotonic() + seconds
if kind == "steady":
    while time.monotonic() < end:
        launch()
else:
    for _ in range(round(1000 * seconds)):
        launch()
    call("cuCtxSynchronize")
print("done", flush=True)
