"""Stands for torch.cuda."""

import ctypes
import os

import stand_in_cuda  # type: ignore[import-not-found] # on the path of the kernels only

from . import _C

_initialized = False


def device_count() -> int:
    if os.environ.get("PYTORCH_NVML_BASED_CUDA_CHECK") == "1":
        return len([uuid for uuid in stand_in_cuda.visible() if uuid in _nvml_uuids()])
    return _C._cuda_getDeviceCount()


def _nvml_uuids() -> list[str]:
    """Return the GPUs that NVML counts, as PyTorch asks for them: it is initialised each time, and never shut down."""
    visible = stand_in_cuda.visible()
    if not visible:
        return []
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:  # none stands in
        return list(visible)
    nvml.nvmlInit_v2()
    count, handle, text = ctypes.c_uint(0), ctypes.c_void_p(), ctypes.create_string_buffer(96)
    nvml.nvmlDeviceGetCount_v2(ctypes.byref(count))
    found = []
    for index in range(count.value):
        nvml.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(handle))
        nvml.nvmlDeviceGetUUID(handle, text, 96)
        found.append(text.value.decode())
    return found


def is_available() -> bool:
    return device_count() > 0


def _lazy_init() -> None:
    global _initialized
    if not _initialized:
        _C._cuda_init()
        _initialized = True
