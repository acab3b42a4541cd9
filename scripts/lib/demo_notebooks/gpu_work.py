"""Work for the GPUs that a process sees, by the functions of the CUDA driver that every CUDA program calls."""

from __future__ import annotations

import ctypes
import os
import time
from pathlib import Path

BOARDS = Path("/tmp/gpu-boards")
"""Folder of the pod, in which the simulated GPUs write down what they did."""
DEVICES = Path("/dev/jupyter-gpu")


def work(seconds: float) -> int:
    """Keep the GPUs open and busy for some seconds; return how many kernels they ran."""
    names = os.environ["CUDA_VISIBLE_DEVICES"].split(",")
    BOARDS.mkdir(exist_ok=True)
    os.environ["JUPYTER_GPU_STANDIN"] = str(BOARDS)
    os.environ["JUPYTER_GPU_STANDIN_GPUS"] = ",".join(f"{name}:1024" for name in names)
    held = [number for path in sorted(DEVICES.iterdir()) if (number := _open(path)) is not None]
    try:
        return _launch(len(names), seconds)
    finally:
        for number in held:
            os.close(number)


def _open(path: Path) -> int | None:
    try:
        return os.open(path, os.O_RDWR | os.O_NOCTTY | os.O_NONBLOCK)
    except PermissionError:  # it is not ours
        return None


def _launch(count: int, seconds: float) -> int:
    driver = ctypes.CDLL("libcuda.so.1")

    def call(name: str, *arguments: object) -> None:
        wide = [ctypes.c_uint64(each) if isinstance(each, int) else each for each in arguments]
        if error := getattr(driver, name)(*wide):
            raise RuntimeError(f"{name} failed with error {error}.")

    def made(name: str, *arguments: object) -> int:
        value = ctypes.c_uint64(0)
        call(name, ctypes.byref(value), *arguments)
        return value.value

    call("cuInit", 0)
    kernels = []
    for device in range(count):
        context = made("cuCtxCreate_v2", 0, device)
        kernels.append((context, made("cuModuleGetFunction", made("cuModuleLoadData", b"image"), b"work_us1000")))
    launched, end = 0, time.monotonic() + seconds
    while time.monotonic() < end:
        for context, kernel in kernels:
            call("cuCtxSetCurrent", context)
            call("cuLaunchKernel", kernel, 1, 1, 1, 1, 1, 1, 0, 0, None, None)
            call("cuCtxSynchronize")
            launched += 1
    return launched
