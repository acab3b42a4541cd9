"""Stands for torch.cuda."""

import os

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only

from . import _C

_initialized = False


def device_count() -> int:
    if os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") == "1":
        return len(stand_in_cuda.visible())
    return _C._cuda_getDeviceCount()


def is_available() -> bool:
    return device_count() > 0


def _lazy_init() -> None:
    global _initialized
    if not _initialized:
        _C._cuda_init()
        _initialized = True
